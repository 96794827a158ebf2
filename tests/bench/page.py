"""What a person waits for in the browser: a server as `losscore app` starts it, and a Chromium."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import torch
from playwright.sync_api import Browser, Page, WebSocket, sync_playwright

from losscore.models import Model
from tests.bench.clock import seconds
from tests.bench.statistics import forward
from tests.bench.step import text_of
from tests.bench.table import NotMeasured, Row

TOKENS, MANY = 300, 2_000
WORDS = ("apples", "garden", "window", "mountain", "paper", "river", "kitchen", "summer", "music", "yellow")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
WAIT = 90_000
IDLE = "[data-testid=stApp][data-test-script-state=notRunning]"
# From an event in the page to the frame after the one in which `seen` holds; the strip lives in a shadow root.
STOPWATCH = """
window.stopwatch = (event, seen, name) => {
  window.taken = { ...window.taken, [name]: null };
  const hosts = "[data-testid=stBidiComponentIsolated]";
  const roots = () => [document, ...[...document.querySelectorAll(hosts)].map((host) => host.shadowRoot)];
  const find = (selector) => roots().flatMap((root) => (root ? [...root.querySelectorAll(selector)] : []));
  const start = () => {
    const began = performance.now();
    const look = () => {
      if (!seen(find)) setTimeout(look, 20);  // any oftener, and looking would cost what is measured
      else requestAnimationFrame(() => setTimeout(() => (window.taken[name] = performance.now() - began)));
    };
    look();
  };
  window.addEventListener(event, start, { capture: true, once: true });
};
"""
BLOCKED = """() => {
  window.blocked = [0];
  const note = (list) => window.blocked.push(...list.getEntries().map((task) => task.duration));
  new PerformanceObserver(note).observe({ entryTypes: ["longtask"] });
}"""
# What is seen of a fine-tune after the press, in this order.
LIVE = {
    "lanes": """(find) => find('.losscore-strip [data-lane="now-0"]').length > 0""",
    "step": """(find) => find("[data-testid=stProgress]").some((bar) => /Step [1-9]/.test(bar.textContent))""",
    "end": """(find) => find("[data-testid=stAlert]").some((said) => said.textContent.includes("Finished after"))""",
}
STRIP_HAS = """(find) => find('.losscore-strip [data-lane="p"]').some((pane) => pane.textContent.includes("%s"))"""
PANEL_SAYS = f"""(find) => document.querySelector('{IDLE}')
  && find(".st-key-token-panel").some((panel) => panel.textContent.includes("Token %d of"))"""


def rows(model: Model, repeats: int) -> Iterator[Row]:
    """From the command to the first words; then edits of a text, clicks on its tokens, and a long text."""
    if CHROMIUM is None:
        raise NotMeasured("there is no Chromium on this machine")
    began = time.perf_counter()
    with served() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.add_init_script(STOPWATCH)
        frames: list[bytes] = []
        page.on("websocket", lambda wire: _listen(wire, frames))
        page.goto(address)
        page.get_by_text("What a fine-tuning objective sees").first.wait_for(timeout=WAIT)
        words = time.perf_counter() - began
        page.locator(".losscore-strip [data-i]").first.wait_for(timeout=WAIT)
        strip = time.perf_counter() - began
        yield Row(
            "`losscore app` to the first words / to the coloured tokens", "", (words, strip), form=".1f", unit="s"
        )
        yield from _edits(model, page, repeats)
        clicks = [_timed_click(page, 5 + 3 * turn) for turn in range(repeats + 1)][1:]
        yield Row("a click on a token to its whole panel", f"{TOKENS} tokens", (median(clicks),), 200, ".0f", "ms")
        frames.clear()
        _timed_edit(page, text_of(model, MANY - 1) + " violet", "violet")
        largest = max(len(frame) for frame in frames if b"losscore-strip" in frame)
        yield Row("the lanes as they are sent to the browser", f"{MANY:,} tokens", (largest / 1e3,), 250, ".0f", "KB")
        clicks = [_timed_click(page, 5 + 3 * turn) for turn in range(repeats + 1)][1:]
        yield Row("a click on a token to its whole panel", f"{MANY:,} tokens", (median(clicks),), form=".0f", unit="ms")
        page.close()
        yield from _button(browser, address, min(repeats, 3))
        browser.close()


def _edits(model: Model, page: Page, repeats: int) -> Iterator[Row]:
    """An edit of the first word and of the last, beside the bare forward pass of the whole changed text.

    The pass runs on as many threads as the app's: one core is the page's and the browser's.
    """
    base = text_of(model, TOKENS - 1)
    threads = torch.get_num_threads()
    for place, form in (("first", "{word} {base}"), ("last", "{base} {word}")):
        taken, bare = [], []
        for word in WORDS[: repeats + 1]:
            text = form.format(word=word, base=base)
            taken.append(_timed_edit(page, text, word))
            ids = list(model.encoder.encode(text).ids)
            torch.set_num_threads(max(1, threads - 1))
            bare.append(1e3 * seconds(lambda: forward(model, ids)))  # noqa: B023
            torch.set_num_threads(threads)
        edit, alone = median(taken[1:]), median(bare[1:])
        what = f"an edit of the {place} word to painted, beyond a forward pass of the text by one core less"
        note = f"({edit:.0f} − {alone:.0f})"
        yield Row(what, f"{TOKENS} tokens", (edit - alone,), 300, ".0f", "ms", note)


def _timed_edit(page: Page, text: str, word: str) -> float:
    """Milliseconds from Ctrl+Enter to the strip with the new word."""
    box = page.get_by_label("Text: edit it")
    box.fill(text)
    page.evaluate(f"stopwatch('keydown', {STRIP_HAS % word}, 'edit')")
    box.press("Control+Enter")
    return _stopped(page, "edit")


def _timed_click(page: Page, index: int) -> float:
    """Milliseconds from a click to the end of the run that shows the token."""
    page.evaluate(f"stopwatch('click', {PANEL_SAYS % (index + 1)}, 'click')")
    page.locator(f'.losscore-strip [data-lane="p"] [data-i="{index}"]').click()
    return _stopped(page, "click")


def _button(browser: Browser, address: str, repeats: int) -> Iterator[Row]:
    """The fine-tune of the first example as a newcomer starts it: from the Tokens page, with everything as it is."""
    taken: list[dict[str, float]] = []
    for _ in range(repeats + 1):
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        page.add_init_script(STOPWATCH)
        page.goto(address)
        page.locator(".losscore-strip [data-i]").first.wait_for(timeout=WAIT)
        page.wait_for_selector(IDLE, timeout=WAIT)
        page.get_by_role("link", name="Fine-tune").click()
        button = page.get_by_role("button", name="Fine-tune", exact=True)
        button.wait_for(timeout=WAIT)
        page.wait_for_timeout(5_000)  # as long as one reads
        page.evaluate(BLOCKED)
        for name, seen in LIVE.items():
            page.evaluate(f"stopwatch('click', {seen}, '{name}')")
        button.click()
        times = {name: _stopped(page, name) for name in LIVE}
        taken.append(times | {"blocked": page.evaluate("Math.max(...window.blocked)")})
        page.close()
    lanes, step, end, blocked = (median(run[name] for run in taken[1:]) for name in (*LIVE, "blocked"))
    yield Row("the Fine-tune button to its first frame, the lanes", "53 tokens", (lanes / 1e3,), 2, ".1f", "s")
    yield Row(
        "… to the first step made / to the end of 20 steps", "53 tokens", (step / 1e3, end / 1e3), None, ".1f", "s"
    )
    yield Row("the longest time that the page stood still meanwhile", "53 tokens", (blocked,), 500, ".0f", "ms")


def _stopped(page: Page, name: str) -> float:
    page.wait_for_function(f"window.taken.{name} !== null", timeout=WAIT)
    taken: float = page.evaluate(f"window.taken.{name}")
    page.wait_for_selector(IDLE, timeout=WAIT)
    page.wait_for_timeout(300)
    return taken


def _listen(wire: WebSocket, frames: list[bytes]) -> None:
    wire.on("framereceived", lambda payload: frames.append(payload if isinstance(payload, bytes) else b""))


@contextmanager
def served() -> Iterator[str]:
    """The app's address, once it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "losscore", "app", "--port", str(port), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            if process.poll() is not None:
                raise RuntimeError("The app ended before it answered.")
            try:
                with urllib.request.urlopen(f"{address}/_stcore/health", timeout=1):
                    break
            except OSError:
                time.sleep(0.05)
        yield address
    finally:
        process.terminate()
        process.wait(20)
