"""Whatever was typed, every export reads back to the same table, strictly."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import losscore
from losscore.columns import COLUMNS
from losscore.sheet import Sheet
from losscore.text.encoding import mend_surrogates
from tests.hard.vocabularies import gemma_like, gpt1_like, unigram
from tests.tiny import Oracle, gpt2_like, mini_model

TEXTS = (
    "NULL",
    "NaN",
    "=1+1",
    '"',
    ",",
    "\r\n",
    "\x00",
    "\x1a",
    "\ufeff",
    "\u2028",
    "007",
    "1e5",
    "True",
    "-0",
    "#",
    "\\",
)
texts = st.text(st.characters() | st.sampled_from('",;\n\r\t\0\\=+-@#'), max_size=12)
pieces = st.lists(texts | st.sampled_from(TEXTS), max_size=4).map("".join)


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def assert_reads_back(sheet: Sheet) -> None:
    rows = sheet.rows()
    assert len(rows) == len(sheet)
    whole = json.loads(sheet.export("json").decode("utf-8"), parse_constant=refuse)
    assert whole == {"provenance": dict(sheet.provenance), "tokens": rows}

    read = list(csv.reader(io.StringIO(sheet.export("csv").decode("utf-8"), newline="")))
    assert json.loads(read[0][0].removeprefix("# losscore "), parse_constant=refuse) == dict(sheet.provenance)
    assert read[1] == list(sheet.columns)
    assert read[2:] == [["" if value is None else str(value) for value in row.values()] for row in rows]

    table = pq.read_table(io.BytesIO(sheet.export("parquet")))
    assert table.to_pylist() == rows
    assert json.loads(table.schema.metadata[b"losscore"], parse_constant=refuse) == dict(sheet.provenance)

    data = io.BytesIO(sheet.export("csv"))
    frame = pd.read_csv(data, skiprows=1, keep_default_na=False, na_values=[""], dtype={"token": str, "bytes": str})
    assert frame["token"].tolist() == [row["token"] for row in rows]
    assert frame["id"].tolist() == [row["id"] for row in rows]
    assert b"\xef\xbf\xbd" not in sheet.export("html") or "\ufffd" in sheet.text


@pytest.fixture(scope="module", params=["gpt2", "gemma", "unigram", "gpt1"])
def model(request: pytest.FixtureRequest) -> Any:
    kinds: dict[str, Callable[[], Any]] = {
        "gpt2": gpt2_like,
        "gemma": gemma_like,
        "unigram": lambda: unigram("always", False),
        "gpt1": gpt1_like,
    }
    return mini_model(kinds[request.param]())


@settings(max_examples=15)
@given(text=pieces)
@example(text="\ud83d b\ude00 \ud83d\ude00")
@example(text="null NA nan None n/a 8 8")
@example(text="")
def test_any_text(model: Any, text: str) -> None:
    sheet = losscore.score(model, text, objectives=["dft"])
    assert sheet.text == mend_surrogates(text)[0]
    assert_reads_back(sheet)


def test_two_entries_that_differ_by_a_blank_stay_apart() -> None:
    model = mini_model(gpt2_like())
    sheet = losscore.score(model, "cost 8 and 8, x=8")
    read = list(csv.DictReader(io.StringIO(sheet.to_csv().split("\r\n", 1)[1], newline="")))
    eights = {row["token"]: row["id"] for row in read if row["token"].endswith("8")}
    assert set(eights) == {"·8", "8"}
    assert len(set(eights.values())) == 2
    assert {row["bytes"] for row in read if row["token"].endswith("8")} == {"2038", "38"}


TEXT = "AzBycxdw"


@pytest.mark.parametrize("logit", [math.nan, math.inf, -math.inf, 1e30, -1e30])
@pytest.mark.parametrize("where", ["all", "one", "target"])
def test_logits_that_are_no_numbers_or_huge_leave_strict_exports(logit: float, where: str) -> None:
    oracle = Oracle(TEXT)
    ids = oracle.encoder.encode(TEXT).ids
    column = {"all": slice(None), "one": 7, "target": ids[4]}[where]
    oracle._spike[ids[3], column] = logit
    sheet = losscore.score(oracle, TEXT)
    assert_reads_back(sheet)
    others = [row for row in range(1, len(sheet)) if row != 4]
    assert all(sheet.value("log_p", row) == pytest.approx(0, abs=1e-12) for row in others)
    blank = math.isnan(logit) or logit == math.inf or (where == "all" and logit == -math.inf)
    assert (sheet.value("entropy", 4) is None) == blank
    assert sheet.summary.scored == len(sheet) - 1 - blank
    for row in sheet.rows():
        assert all(value is None or not isinstance(value, float) or math.isfinite(value) for value in row.values())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_ties_at_the_ends_of_half_precision(dtype: torch.dtype) -> None:
    oracle = Oracle(TEXT)
    oracle._spike = oracle._spike.to(dtype)
    ids = oracle.encoder.encode(TEXT).ids
    top = torch.finfo(dtype).max
    oracle._spike[ids[3]] = -top
    oracle._spike[ids[3], [ids[4], ids[5]]] = top
    sheet = losscore.score(oracle, TEXT)
    assert sheet.value("log_p", 4) == pytest.approx(-math.log(2), rel=1e-12)
    assert sheet.value("entropy", 4) == pytest.approx(math.log(2), rel=1e-12)
    assert sheet.value("rank", 4) == 2
    assert_reads_back(sheet)


def test_every_column_has_a_meaning_and_every_export_its_columns() -> None:
    sheet = losscore.score(Oracle(TEXT), TEXT)
    assert list(sheet.columns) == list(COLUMNS)
    assert list(sheet.to_frame().columns) == list(COLUMNS)
