"""The table of figures calls a miss a miss, and comes back from the file as it went in."""

from __future__ import annotations

import sys

import pytest

from tests.bench import __main__ as bench
from tests.bench import table
from tests.bench.table import NotMeasured, Row, Section


@pytest.mark.parametrize(("values", "missed"), [((1.05,), False), ((1.054,), False), ((1.056, 0.9), True)])
def test_a_value_above_what_is_aimed_at_as_it_is_written_is_a_miss(values, missed):
    row = Row("a step", "64 tokens", values, 1.05)
    assert row.missed is missed
    assert ("missed" in row.line()) is missed


def test_a_value_without_an_aim_is_never_missed():
    assert Row("a step", "64 tokens", (9.0,), note="(slow)").line() == "| a step | 64 tokens | 9.00 (slow) |  |"


def test_figures_are_kept_section_by_section_in_the_order_of_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "FIGURES", tmp_path / "figures.json")
    first, second, newer = (Section("a machine", (Row("what", "size", (value,)),)) for value in (1.0, 2.0, 3.0))
    table.keep("b", second, ["a", "b"])
    table.keep("a", first, ["a", "b"])
    assert list(table.kept().items()) == [("a", first), ("b", second)]
    table.keep("b", newer, ["a", "b"])
    assert table.kept() == {"a": first, "b": newer}
    assert table.table(table.kept()).count("a machine") == 1


def test_a_section_that_could_not_be_measured_keeps_its_figures(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(table, "FIGURES", tmp_path / "figures.json")
    monkeypatch.setattr(bench, "machine", lambda model: "a machine")
    before, whole = (Section("another machine", (Row("what", "size", (value,)),)) for value in (1.0, 2.0))
    table.keep("page", before, ["page", "start"])

    def page(repeats):
        yield whole.rows[0]
        raise NotMeasured("there is no browser")

    monkeypatch.setattr(bench, "SECTIONS", {"page": page, "start": lambda repeats: iter(whole.rows)})
    monkeypatch.setattr(sys, "argv", ["bench"])
    bench.main()
    assert table.kept()["page"] == before
    assert table.kept()["start"].rows == whole.rows
    assert "page: there is no browser; the figures kept" in capsys.readouterr().err
