"""Random visitors of one server: `python -m tests.soak [--minutes N] [--visitors N] [--seed N]`, or `make soak`."""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.app.person import Person
from tests.app.served import Served, served
from tests.browser.conftest import ARGUMENTS
from tests.soak.visitor import Visitor

# Of the third quarter's median, for the last quarter's: by the half the models, and most sheets, are held.
FLAT = 1.10
EVERY = 2.0


def main() -> int:
    """0 where nothing went wrong, 1 after a list of what did."""
    arguments = argparse.ArgumentParser(prog="python -m tests.soak")
    arguments.add_argument("--minutes", type=float, default=5.0)
    arguments.add_argument("--visitors", type=int, default=4)
    arguments.add_argument("--seed", type=int, default=0)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as server:
        troubles, held, done = soak(server, given.minutes * 60, given.visitors, given.seed)
        troubles += freed(server)
        troubles += server.complaints()
    third, last = (statistics.median(held[at : at + len(held) // 4]) for at in (len(held) // 2, len(held) * 3 // 4))
    if last > FLAT * third:
        troubles.append(f"memory grew from {third / 1e6:.0f} to {last / 1e6:.0f} MB between the last two quarters")
    print(f"{sum(done.values())} actions: " + ", ".join(f"{name[1:]} {count}" for name, count in done.most_common()))
    print(f"server: {held[0] / 1e6:.0f} MB at first, {third / 1e6:.0f} and {last / 1e6:.0f} MB in the last quarters")
    print("\n".join(dict.fromkeys(troubles)) or "nothing went wrong")
    return 1 if troubles else 0


def soak(server: Served, seconds: float, visitors: int, seed: int) -> tuple[list[str], list[int], Counter[str]]:
    """What went wrong, the server's memory from time to time, and how often each thing was done."""
    chance = random.Random(seed)
    held, done = [server.memory()], Counter[str]()
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        present = [Visitor(browser, server.address, chance) for _ in range(visitors)]
        end = measured = time.monotonic()
        end += seconds
        while time.monotonic() < end:
            done[chance.choice(present).act()] += 1
            if time.monotonic() > measured + EVERY:
                measured = time.monotonic()
                held.append(server.memory())
        for visitor in present:
            visitor.close()
        browser.close()
    return [trouble for visitor in present for trouble in visitor.troubles], held, done


def freed(server: Served) -> list[str]:
    """With all tabs closed, a newcomer's fine-tune need not wait for anybody's."""
    with Person(server.address) as person:
        person.open()
        person.open("finetune")
        person.choose("Steps", 0)
        person.press("Fine-tune")
        end = time.monotonic() + 60
        while person.of("progress") and time.monotonic() < end:
            time.sleep(0.2)
            person.again()
        return [] if "Finished after 0 steps." in person.words() else ["a closed tab's fine-tune still runs"]


if __name__ == "__main__":
    sys.exit(main())
