"""A text of 250,000 tokens on the pages: all of it is scored, a part of it is sent to the browser."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import losscore
from app import session
from losscore.sheet import Sheet

MAIN = Path(__file__).resolve().parents[2] / "app" / "main.py"
TOKENS = 250_000


def repeated(sheet: Sheet, tokens: int) -> Sheet:
    """`sheet` over and over, as if it were the sheet of a long text."""
    times = -(-tokens // len(sheet))
    columns: dict[str, Any] = {
        name: values * times if isinstance(values, list) else np.tile(values, times)
        for name, values in sheet.columns.items()
    }
    columns["position"] = np.arange(times * len(sheet))
    long = replace(
        sheet,
        columns=columns,
        special=tuple(sheet.special) * times,
        cut_characters={},
        top_tokens=tuple(sheet.top_tokens) * times,
        top_ids=np.tile(sheet.top_ids, (times, 1)),
        top_log_p=np.tile(sheet.top_log_p, (times, 1)),
    )
    return long.part(0, tokens)


@pytest.fixture
def page(mini: Any, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    short = losscore.score(mini, "They cost 2 * 13 = 26 euros. " * 20)
    sheets = {None: repeated(short, TOKENS), session.FIRST_TOKENS: repeated(short, session.FIRST_TOKENS)}
    left_out = {"tokens_left_out": TOKENS - session.FIRST_TOKENS}
    first = sheets[session.FIRST_TOKENS]
    sheets[session.FIRST_TOKENS] = replace(first, provenance={**first.provenance, **left_out})
    monkeypatch.setattr(session, "_model", lambda name, dtype="float32": mini)
    monkeypatch.setattr(session, "model_names", lambda: ["mini"])
    monkeypatch.setattr(session, "sheet", lambda request: sheets[request.limit])
    opened = AppTest.from_file(str(MAIN), default_timeout=120).run()
    assert not opened.exception
    return opened


@pytest.fixture
def scored(page: AppTest) -> AppTest:
    page.button(key="score-all").click().run()
    assert not page.exception
    return page


def sent(page: AppTest) -> int:
    """Bytes of all that is drawn."""
    return sum(element.proto.ByteSize() for element in page.main if getattr(element, "proto", None) is not None)


def strip_tokens(page: AppTest) -> int:
    return len(json.loads(page.get("bidi_component")[0].proto.json)["tokens"])


def test_all_tokens_scored_are_drawn_part_by_part(scored: AppTest) -> None:
    assert f"{TOKENS:,} tokens scored" in "".join(element.value for element in scored.markdown).replace("\\", "")
    assert strip_tokens(scored) == session.DRAWN_TOKENS
    assert len(scored.selectbox(key="part").options) == TOKENS // session.DRAWN_TOKENS
    assert len(scored.dataframe[0].value) == 20_000
    assert sent(scored) < 8_000_000
    scored.selectbox(key="part").select(TOKENS - session.DRAWN_TOKENS).run()
    assert not scored.exception
    assert strip_tokens(scored) == session.DRAWN_TOKENS


def said(page: AppTest) -> list[str]:
    return [element.value for element in page.caption if "are compared here" in element.value]


def test_the_objectives_are_compared_on_the_first_of_them_and_it_is_said(scored: AppTest) -> None:
    scored.switch_page("views/objectives.py").run()
    assert not scored.exception
    assert strip_tokens(scored) == session.FIRST_TOKENS
    (caption,) = said(scored)
    assert "Only the first 2,000 of the text's 250,000 tokens" in caption
    assert sent(scored) < 8_000_000


def test_it_is_said_too_where_not_all_of_them_were_scored(page: AppTest) -> None:
    page.switch_page("views/objectives.py").run()
    assert not page.exception
    assert strip_tokens(page) == session.FIRST_TOKENS
    (caption,) = said(page)
    assert "Only the first 2,000 of the text's 250,000 tokens" in caption
