"""Many people at once on one real server: each gets what they would get alone, and nothing piles up."""

from __future__ import annotations

import ctypes
import gc
import json
import sys
import threading
import time
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from transformers import LlamaConfig

import losscore
from app import jobs
from losscore.finetuning import FineTune, Settings
from losscore.lanes import strip_payload
from losscore.models import EMBEDDED, Model
from tests.app.person import Person
from tests.app.served import ROOT, served
from tests.models import tiny

EXAMPLES = {e["id"]: e for e in json.loads((ROOT / "assets" / "examples.json").read_text("utf-8"))}


class Wish(NamedTuple):
    """What one person asks for."""

    example: str
    model: str
    bos: str = "Always"
    view: str = "panes"
    bits: bool = False


def alone(wish: Wish, model: Model) -> dict[str, Any]:
    example = EXAMPLES[wish.example]
    sheet = losscore.score(model, example["text"], example.get("prompt"), bos=wish.bos.lower(), limit=2000)
    return json.loads(json.dumps(strip_payload(sheet, view=wish.view, bits=wish.bits)))


def ask(address: str, start: threading.Barrier, wish: Wish) -> dict[str, Any]:
    with Person(address) as person:
        start.wait(60)
        person.open(
            example=EXAMPLES[wish.example]["title"],
            model=wish.model,
            bos=wish.bos,
            view="Stripes" if wish.view == "stripes" else "Six panes",
            units="bits" if wish.bits else "nats",
        )
        assert not person.of("exception")
        return person.lanes()


def train(address: str, start: threading.Barrier, model: str, steps: threading.Event) -> str:
    """Press Fine-tune, look again until it has ended; what is said then."""
    with Person(address) as person:
        person.open(model=model)
        start.wait(60)
        person.open("finetune")
        person.choose("Steps", 5)
        person.press("Fine-tune")
        while person.of("progress"):
            steps.set()
            time.sleep(0.1)
            person.again()
        assert not person.of("exception")
        return person.words()


@pytest.mark.embedded
def test_eight_at_once_get_what_each_would_get_alone_from_one_load_of_each_model(tmp_path: Path, embedded: Model):
    folder = str(tiny.save(tiny.CONFIGS["llama"](), tmp_path / "tiny"))
    names = list(EXAMPLES)
    wishes = [
        Wish(names[0], EMBEDDED),
        Wish(names[1], EMBEDDED, "Never"),
        Wish(names[2], EMBEDDED, view="stripes"),
        Wish(names[0], EMBEDDED, bits=True),
        Wish(names[0], folder),
        Wish(names[1], folder, view="stripes"),
        Wish(names[3], folder, "Never", bits=True),
    ]
    models = {EMBEDDED: embedded, folder: losscore.load(folder)}
    with served(tmp_path) as server, ThreadPoolExecutor(8) as pool:
        address = server.address
        start, began = threading.Barrier(8), threading.Event()
        trainer = pool.submit(train, address, start, folder, began)
        answers = list(pool.map(partial(ask, address, start), wishes))
        assert "Finished after 5 steps." in trainer.result()
        assert began.is_set()
        with Person(address) as late:
            late.open(example=EXAMPLES[names[0]]["title"], model=folder, bos="Always")
            after_training = late.lanes()
    for wish, answer in zip(wishes, answers, strict=True):
        assert answer == alone(wish, models[wish.model]), wish
    assert after_training == alone(wishes[4], models[folder]), "the shared model is as it was"
    assert Counter(server.loaded()) == {EMBEDDED: 1, folder: 1}
    assert server.complaints() == []


def test_a_tab_that_goes_makes_room_for_the_one_that_waits(tmp_path: Path):
    folder = str(tiny.save(tiny.CONFIGS["llama"](), tmp_path / "tiny"))
    with served(tmp_path) as server, Person(server.address) as waiting:
        gone = Person(server.address)
        gone.open(model=folder)
        gone.open("finetune")
        gone.choose("Steps", 1000)
        gone.press("Fine-tune")
        waiting.open(model=folder)
        waiting.open("finetune")
        waiting.choose("Steps", 1)
        waiting.press("Fine-tune")
        assert any("Waiting" in e.progress.text for e in waiting.of("progress"))
        # Four times a second, beside the training: a poll that finds nothing new may not draw the lanes once more.
        assert waiting.of("bidi_component")
        assert set(waiting.poll()) <= {"progress", "button", "None"}
        gone.leave()
        deadline = time.monotonic() + 120
        while waiting.of("progress") and time.monotonic() < deadline:
            time.sleep(0.1)
            waiting.again()
        assert "Finished after 1 step." in waiting.words()


def test_ten_fine_tunes_in_a_row_leave_no_more_than_two_do(tmp_path: Path):
    """The model weighs 24 MB, so that one copy kept by each run would show."""
    config = LlamaConfig(
        vocab_size=tiny.SIZE,
        hidden_size=384,
        intermediate_size=1536,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=64,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = losscore.load(str(tiny.save(config, tmp_path / "tiny")))
    line = jobs.Line()
    held: list[int] = []
    copies: list[weakref.ref[FineTune]] = []
    last: jobs.Job | None = None
    for _ in range(10):
        if last is not None:
            last.close()
        last = jobs.Job([jobs.Racer("NLL", partial(build, model, copies))], "cpu", 2, line)
        last.start()
        assert last.wait(120)
        assert last.view().state == "finished"
        held.append(resident())
    assert held[9] <= 1.05 * held[1], [round(size / 1e6) for size in held]
    assert sum(copy() is not None for copy in copies) == 1, "only the last run's copy is kept"


def resident() -> int:
    """Bytes in use: what the allocator only keeps for later is given back first, where it can be asked to."""
    gc.collect()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)
    return int(psutil.Process().memory_info().rss)


def build(model: Model, copies: list[weakref.ref[FineTune]], stop: jobs.Stop) -> FineTune:
    tuning = FineTune(model, "The cat sat on the mat.", stop=stop, settings=Settings(steps=2, method="full"))
    copies.append(weakref.ref(tuning))
    return tuning
