"""The shared store of sheets."""

import threading
import time
from dataclasses import replace

import pytest

from app import session
from app.session import Request, SheetStore


class Kept:
    """As much of a sheet as a store and a fine-tune look at."""

    def __init__(self, tokens: int, left_out: int = 0) -> None:
        self.tokens, self.provenance = tokens, {"tokens_left_out": left_out}

    def __len__(self) -> int:
        return self.tokens


ONE = Request("m", "one", None, "auto", False)
TWO = Request("m", "two", None, "auto", False)


def test_the_same_request_is_computed_once_also_when_asked_for_at_the_same_time():
    store, calls, results = SheetStore(), [], []

    def compute():
        calls.append(1)
        time.sleep(0.1)
        return object()

    threads = [threading.Thread(target=lambda: results.append(store.get(ONE, compute))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert len(set(map(id, results))) == 1


def test_an_error_leaves_nothing_behind():
    store = SheetStore()
    with pytest.raises(ValueError, match="broken"):
        store.get(ONE, lambda: (_ for _ in ()).throw(ValueError("broken")))
    assert store.get(ONE, lambda: "fine") == "fine"


def test_the_store_keeps_the_sheets_used_last():
    store = SheetStore(size=1)
    store.get(ONE, lambda: "a")
    store.get(TWO, lambda: "b")
    assert store.get(ONE, lambda: "again") == "again"


def test_long_texts_push_each_other_out_but_never_the_last_one():
    store = SheetStore(size=64, tokens=100)
    requests = [replace(ONE, text=str(length)) for length in (40, 50, 30, 500)]
    kept = []
    for request in requests:
        store.get(request, lambda request=request: Kept(int(request.text)))
        kept.append([one.text for one in requests if store.known(one)])
    assert kept == [["40"], ["40", "50"], ["50", "30"], ["500"]]


def test_only_a_sheet_of_the_whole_text_in_float32_is_what_a_fine_tune_starts_from(monkeypatch):
    store = SheetStore()
    monkeypatch.setattr(session, "sheets", lambda: store)
    whole, cut = Kept(5, 0), Kept(5, 7)
    others = [replace(ONE, parse_special=True), replace(ONE, dtype="bfloat16")]
    for request in (ONE, *others):
        store.get(request, lambda: whole)
    store.get(TWO, lambda: cut)
    assert session.plain_sheet(ONE) is whole
    assert [session.plain_sheet(request) for request in (*others, TWO)] == [None] * 3
    assert session.plain_sheet(replace(ONE, text="never scored")) is None
