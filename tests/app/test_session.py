"""The shared store of sheets."""

import threading
import time

import pytest

from app.session import Request, SheetStore

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
