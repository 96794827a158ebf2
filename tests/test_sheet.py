from __future__ import annotations

import csv
import io
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import losscore
from losscore.columns import COLUMNS
from losscore.errors import LosscoreError
from losscore.sheet import FORMATS, Sheet
from tests.tiny.table import PROVENANCE, sheet_of

# What spreadsheets, table readers and browsers trip over.
HOSTILE = (
    "null", "NA", "nan", "None", "n/a", "007", "1e5", "8", "·8", "True", 'say "hi"', "a,b", ";", "'", "#", "\\",
    "=1+1", "+", "-", "@", "</script><img src=x onerror=alert(1)>", "<!--", "]]>", "&amp;", "$x$",
    "한국어", "😀", "⟨F0 9F⟩", "\u2028",
)  # fmt: skip
VALUES = [name for name, column in COLUMNS.items() if column.kind != "text"]


@pytest.fixture
def hostile() -> Sheet:
    numbers = [None, *(-0.1 * row for row in range(1, len(HOSTILE)))]
    return sheet_of(
        HOSTILE,
        log_p=numbers,
        p=[None if value is None else math.exp(value) for value in numbers],
        rank=[None, *range(2, len(HOSTILE) + 1)],
        ranktuner_scale_from_bounds=[None, math.inf, *[1.5] * (len(HOSTILE) - 2)],
    )


def strictly(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


# Exports ---------------------------------------------------------------------------------------------------------


def test_rows_are_plain_python_with_none_where_undefined(hostile: Sheet) -> None:
    rows = hostile.rows()
    assert [row["token"] for row in rows] == list(HOSTILE)
    assert rows[0]["log_p"] is None
    assert rows[0]["rank"] is None
    assert rows[1]["ranktuner_scale_from_bounds"] is None
    assert rows[2]["rank"] == 3
    assert (type(rows[2]["rank"]), type(rows[2]["log_p"]), type(rows[2]["is_target"])) == (int, float, bool)
    assert list(rows[0]) == list(COLUMNS)


def test_json_reads_back_equal_and_is_strict(hostile: Sheet) -> None:
    table = strictly(hostile.to_json())
    assert table == {"provenance": dict(PROVENANCE), "tokens": hostile.rows()}


def test_csv_reads_back_equal_through_the_csv_module(hostile: Sheet) -> None:
    reader = csv.reader(io.StringIO(hostile.to_csv(), newline=""))
    (head,) = next(reader)
    assert strictly(head.removeprefix("# losscore ")) == dict(PROVENANCE)
    names = next(reader)
    assert names == list(COLUMNS)
    for found, expected in zip(reader, hostile.rows(), strict=True):
        for name, cell in zip(names, found, strict=True):
            value = expected[name]
            assert cell == ("" if value is None else str(value)), name


def test_csv_reads_back_equal_through_pandas_as_documented(hostile: Sheet, tmp_path: Path) -> None:
    path = tmp_path / "sheet.csv"
    hostile.save(path)
    frame = pd.read_csv(path, skiprows=1, keep_default_na=False, na_values=[""], dtype={"token": str, "bytes": str})
    assert list(frame.columns) == list(COLUMNS)
    assert frame["token"].tolist() == list(HOSTILE)
    assert frame["bytes"].tolist() == [token.encode().hex() for token in HOSTILE]
    assert frame["log_p"].isna().tolist() == [True] + [False] * (len(HOSTILE) - 1)
    assert np.array_equal(frame["log_p"][1:], hostile.columns["log_p"][1:])
    assert frame["is_target"].tolist() == hostile.columns["is_target"].tolist()


def test_parquet_reads_back_equal(hostile: Sheet) -> None:
    table = pq.read_table(io.BytesIO(hostile.to_parquet()))
    assert table.to_pylist() == hostile.rows()
    assert strictly(table.schema.metadata[b"losscore"].decode()) == dict(PROVENANCE)
    kinds = {"int": "int64", "float": "double", "bool": "bool", "text": "string"}
    assert {field.name: str(field.type) for field in table.schema} == {n: kinds[c.kind] for n, c in COLUMNS.items()}


def test_the_frame_has_nullable_numbers_and_the_provenance(hostile: Sheet) -> None:
    frame = hostile.to_frame()
    kinds = {"int": "Int64", "float": "Float64", "bool": "bool"}
    for name, (kind, _) in COLUMNS.items():
        if kind != "text":
            assert str(frame[name].dtype) == kinds[kind], name
    assert frame["token"].tolist() == list(HOSTILE)
    assert frame["rank"].isna().tolist() == [True] + [False] * (len(HOSTILE) - 1)
    assert frame["rank"][2] == 3
    assert frame["digit"].isna().all()
    assert frame.attrs["provenance"] == dict(PROVENANCE)


class _Page(HTMLParser):
    """Elements and attributes as a browser would build them, and the text inside each script."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str | None, str] = {}
        self._script: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._script = (dict(attrs).get("id") or "module") if tag == "script" else None

    def handle_data(self, data: str) -> None:
        if self._script:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._script = None


def parsed(html: str) -> _Page:
    page = _Page()
    page.feed(html)
    return page


def test_html_holds_hostile_tokens_as_data_only(hostile: Sheet) -> None:
    page = parsed(hostile.to_html())
    assert [tag for tag, _ in page.tags if tag in ("img", "iframe", "b", "object")] == []
    assert sum(tag == "script" for tag, _ in page.tags) == 3
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert strictly(page.scripts["losscore-data"])["tokens"] == list(HOSTILE)
    assert strictly(page.scripts["losscore-provenance"]) == dict(PROVENANCE)
    assert "mount(" in page.scripts["module"]


def test_html_fetches_nothing(hostile: Sheet) -> None:
    html = hostile.to_html()
    page = parsed(html)
    assert not any(set(attributes) & {"src", "href", "srcset", "action"} for _, attributes in page.tags)
    assert not re.findall(r"@import|url\(\s*['\"]?(?!data:|#)", html)
    # A namespace is a name, not an address that is fetched.
    assert not re.findall(r"https?://(?!www\.w3\.org/)", html)
    policy = next(a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none';")


def test_a_notebook_frame_is_one_sandboxed_element(hostile: Sheet) -> None:
    page = parsed(hostile._repr_html_())
    ((tag, attributes),) = page.tags
    assert (tag, attributes["sandbox"]) == ("iframe", "allow-scripts")
    assert attributes["srcdoc"] is not None
    assert strictly(parsed(attributes["srcdoc"]).scripts["losscore-data"])["tokens"] == list(HOSTILE)


@pytest.mark.parametrize("format_", FORMATS)
def test_every_export_carries_how_it_was_made(hostile: Sheet, format_: str) -> None:
    data = hostile.export(format_)
    assert isinstance(data, bytes)
    assert b"own setting" in data


@pytest.mark.parametrize("format_", FORMATS)
def test_save_writes_what_the_suffix_says(hostile: Sheet, tmp_path: Path, format_: str) -> None:
    path = tmp_path / f"sheet.{format_.upper()}"
    hostile.save(path)
    assert path.read_bytes() == hostile.export(format_)


@pytest.mark.parametrize("name", ["sheet.xlsx", "sheet"])
def test_another_format_is_refused(hostile: Sheet, tmp_path: Path, name: str) -> None:
    with pytest.raises(LosscoreError, match="json, csv, parquet, html"):
        hostile.save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_sheet_without_rows_exports() -> None:
    sheet = sheet_of(())
    assert strictly(sheet.to_json())["tokens"] == []
    assert len(sheet.to_frame()) == 0
    assert pq.read_table(io.BytesIO(sheet.to_parquet())).num_rows == 0
    assert sheet.to_csv().count("\r\n") == 2
    assert "mount(" in sheet.to_html()


def test_a_scored_sheet_reads_back_equal_from_every_table(mini: Any) -> None:
    sheet = losscore.score(mini, "8 cost 12.5, null NA nan 😀 </script>")
    rows = sheet.rows()
    assert strictly(sheet.to_json())["tokens"] == rows
    assert pq.read_table(io.BytesIO(sheet.to_parquet())).to_pylist() == rows
    read = list(csv.reader(io.StringIO(sheet.to_csv(), newline="")))[2:]
    assert read == [["" if value is None else str(value) for value in row.values()] for row in rows]


def test_a_further_weight_column_is_exported(hostile: Sheet) -> None:
    more = Sheet(
        text=hostile.text,
        columns={**hostile.columns, "weight_dft": np.full(len(hostile), 0.5)},
        provenance=PROVENANCE,
        special=hostile.special,
    )
    assert strictly(more.to_json())["tokens"][1]["weight_dft"] == 0.5
    assert str(more.to_frame()["weight_dft"].dtype) == "Float64"
    assert "weight_dft" in pq.read_table(io.BytesIO(more.to_parquet())).column_names


# Summary ---------------------------------------------------------------------------------------------------------


def test_the_summary_by_hand() -> None:
    sheet = sheet_of(
        ["p", "q", "ab", "é", "7"],
        log_p=[None, -1.0, -2.0, -3.0, -4.0],
        is_target=[False, False, True, True, True],
        digit=[None, None, None, None, 7],
    )
    summary = sheet.summary
    assert (summary.tokens, summary.scored) == (5, 3)
    assert summary.mean_nll == 3.0
    assert summary.perplexity == pytest.approx(math.exp(3))
    assert summary.total_bits == pytest.approx(9 / math.log(2))
    # "ab", "é" and "7" are 2 + 2 + 1 bytes.
    assert summary.bits_per_byte == pytest.approx(9 / math.log(2) / 5)
    assert (summary.digits_covered, summary.digits_in_text) == (1, 3)
    assert summary.line() == (
        "3 of 5 tokens scored · mean NLL 3.000 nats · perplexity 20.09 · 13.0 bits in all · 2.597 bits per byte · "
        "1 of 3 digits in the digit set"
    )


def test_nothing_scored_has_no_mean() -> None:
    summary = sheet_of(["a"]).summary
    assert (summary.scored, summary.mean_nll, summary.perplexity, summary.total_bits) == (0, None, None, None)
    assert summary.bits_per_byte is None
    assert summary.line() == "0 of 1 tokens scored · 0 of 3 digits in the digit set"


def test_a_perplexity_beyond_all_numbers_is_left_out_and_the_mean_stays() -> None:
    summary = sheet_of(["a", "b"], log_p=[None, -2_000.0]).summary
    assert (summary.mean_nll, summary.perplexity) == (2000.0, None)
    assert "perplexity above 1e307" in summary.line()


def test_a_ruled_out_token_makes_the_mean_undefined_not_a_number() -> None:
    summary = sheet_of(["a", "b", "c"], log_p=[None, -math.inf, -1.0]).summary
    assert summary.scored == 2
    assert (summary.mean_nll, summary.perplexity, summary.total_bits) == (None, None, None)


def test_a_blank_row_enters_no_mean() -> None:
    assert sheet_of(["a", "b", "c"], log_p=[None, None, -1.0]).summary.mean_nll == 1.0


# Looking things up -----------------------------------------------------------------------------------------------


def test_value_is_none_where_undefined(hostile: Sheet) -> None:
    assert hostile.value("log_p", 0) is None
    assert hostile.value("ranktuner_scale_from_bounds", 1) is None
    assert hostile.value("log_p", 1) == -0.1


def test_the_row_of_a_character(mini: Any) -> None:
    sheet = losscore.score(mini, "a😀bc")
    assert [sheet.row_at(character) for character in range(4)] == [0, 1, 5, 6]


def test_a_sheet_says_what_it_is_in_one_line(hostile: Sheet) -> None:
    assert repr(hostile) == f"Sheet({len(HOSTILE)} tokens, {len(HOSTILE) - 1} scored, model {PROVENANCE['model']!r})"
    assert len(hostile) == len(HOSTILE)


def test_columns_and_values_have_one_kind_each(mini: Any) -> None:
    sheet = losscore.score(mini, "8 cost 12.5")
    for name in VALUES:
        assert len(sheet.columns[name]) == len(sheet), name
        assert (
            np.asarray(sheet.columns[name]).dtype.kind in {"int": "if", "float": "f", "bool": "b"}[COLUMNS[name].kind]
        )


def test_the_row_of_a_character_is_the_first_token_that_holds_it() -> None:
    sheet = sheet_of(["a", "bc", "d"], start=[0, 1, 3], end=[1, 3, 4])
    assert [sheet.row_at(at) for at in range(4)] == [0, 1, 1, 2]
    with pytest.raises(IndexError):
        sheet.row_at(4)


def test_a_part_holds_its_rows_and_nothing_else(mini):
    sheet = losscore.score(mini, "They cost 2 * 13 = 26 euros, 한국 12.5.")
    start, stop = 3, len(sheet) - 2
    part = sheet.part(start, stop)
    assert len(part) == stop - start
    for name, values in sheet.columns.items():
        assert np.array_equal(part.columns[name], values[start:stop], equal_nan=np.asarray(values).dtype.kind == "f")
    assert part.top_tokens == sheet.top_tokens[start:stop]
    assert np.array_equal(part.top_ids, sheet.top_ids[start:stop])
    assert {row + start for row in part.p_digits} == {row for row in sheet.p_digits if start <= row < stop}
    for row in part.p_digits:
        assert part.p_digits[row] == sheet.p_digits[row + start]
        assert part.digit_logits[row] == sheet.digit_logits[row + start]
    assert {row + start: cut for row, cut in part.cut_characters.items()} == {
        row: cut for row, cut in sheet.cut_characters.items() if start <= row < stop
    }
    assert part.text == sheet.text
    assert len(sheet.part(0, 10**6)) == len(sheet)
