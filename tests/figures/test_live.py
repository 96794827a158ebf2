"""The charts that are redrawn in place: their rows by hand, and a specification that stays the same during a run."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from losscore.figures import live
from tests.tiny.table import sheet_of


def sheet(p: float, top: dict[int, tuple[str, float]], *, digits: tuple[float, ...] = ()) -> Any:
    """Two tokens, the second (id 101) with probability `p` and these most probable tokens."""
    table = sheet_of(["A", "·b"], p=[None, p], log_p=[None, math.log(p)], digit=[None, 3 if digits else None])
    width = len(top)
    return replace(
        table,
        top_tokens=((), tuple(name for name, _ in top.values())),
        top_ids=np.array([[-1] * width, list(top)]),
        top_log_p=np.array([[math.nan] * width, [math.log(value) for _, value in top.values()]]),
        p_digits={1: digits} if digits else {},
    )


def run_of(*sheets: Any, steps: int = 2, **curves: list[float | None]) -> Any:
    snapshots = [
        SimpleNamespace(step=step, steps=steps, sheet=lambda _, table=table: table) for step, table in enumerate(sheets)
    ]
    return SimpleNamespace(
        snapshots=snapshots,
        curve=lambda name: curves[name],
        series=lambda column, _: np.array([np.asarray(table.columns[column], dtype=float) for table in sheets]),
    )


def test_curves_leave_out_what_is_not_known():
    table = sheet(0.5, {7: ("x", 0.25)})
    run = run_of(table, table, gradient_norm=[2.5, None])
    assert live.curve_rows([("NLL", run)], "gradient_norm") == [{"step": 0, "value": 2.5, "objective": "NLL"}]


def test_one_tokens_column_over_the_steps():
    run = run_of(sheet(0.25, {7: ("x", 0.5)}), sheet(0.75, {7: ("x", 0.2)}))
    rows = live.token_curve_rows([("DEL", run)], "p", 1)
    assert [(row["step"], row["value"]) for row in rows] == [(0, 0.25), (1, 0.75)]
    assert live.token_curve_rows([("DEL", run)], "p", 0) == []


def test_bars_before_and_now_the_target_marked_and_the_rest_summed():
    before = sheet(0.1, {7: ("x", 0.5), 8: ("y", 0.25)})
    now = sheet(0.7, {101: ("·b", 0.7), 9: ("new", 0.125), 7: ("x", 0.0625)})
    rows = live.token_rows(before, now, 1, "now")
    found = {(row["when"], row["token"]): row["p"] for row in rows}
    assert found == pytest.approx(
        {
            ("before", "x"): 0.5,
            ("before", "y"): 0.25,
            ("before", "·b ◀ target"): 0.1,
            ("before", "all others"): 0.15,
            ("now", "x"): 0.0625,
            ("now", "new"): 0.125,
            ("now", "·b ◀ target"): 0.7,
            ("now", "all others"): 0.1125,
        }
    )
    assert ("now", "y") not in found, "below the best there is no known p, and no bar"
    places = {row["token"]: row["place"] for row in rows}
    assert sorted(places, key=places.__getitem__) == ["x", "y", "new", "·b ◀ target", "all others"]


def test_a_token_without_a_prediction_has_no_bars():
    assert live.token_rows(sheet(0.1, {7: ("x", 0.5)}), sheet(0.1, {7: ("x", 0.5)}), 0, "now") == []


def test_equal_looking_tokens_keep_bars_of_their_own():
    table = sheet(0.1, {7: ("⟨E2⟩", 0.5), 8: ("⟨E2⟩", 0.25)})
    labels = {row["token"] for row in live.token_rows(table, table, 1, "now")}
    assert len(labels) == 4
    assert sorted(label.rstrip("\u200b") for label in labels)[-1] == "⟨E2⟩"


def test_ten_digits_before_and_for_each_objective():
    flat, sharp = (0.1,) * 10, (*[0.0] * 3, 1.0, *[0.0] * 6)
    before, now = sheet(0.1, {7: ("x", 0.5)}, digits=flat), sheet(0.9, {7: ("x", 0.05)}, digits=sharp)
    rows = live.digit_rows(before, [("NTL", now)], 1)
    assert [row["p"] for row in rows if row["when"] == "before"] == list(flat)
    assert [row["token"] for row in rows if row["when"] == "NTL" and row["p"] == 1.0] == ["3"]
    assert live.digit_rows(before, [("NTL", now)], 0) == []


def test_the_heat_map_has_the_targets_at_every_step_and_thins_a_long_run():
    tables = [sheet(0.25, {7: ("x", 0.5)}), sheet(0.5, {7: ("x", 0.25)})]
    rows = live.heat_rows(run_of(*tables))
    assert [(row["step"], row["position"], row["number"], row["p"]) for row in rows] == [
        (0, 1, 2, 0.25),
        (1, 1, 2, 0.5),
    ]
    domain = live.heat_chart(tables[0], 1000)["encoding"]["y"]["scale"]["domain"]
    assert (domain[0], domain[-1]) == (0, 1000)
    assert len(domain) <= 42
    long = live.heat_rows(run_of(*[tables[0]] * 101, steps=100))
    assert {row["step"] for row in long} == set(live.heat_chart(tables[0], 100)["encoding"]["y"]["scale"]["domain"])


def test_token_text_never_becomes_code_of_the_chart():
    table = sheet_of(["A", "'];alert(1)//\"\\"], p=[None, 0.5], log_p=[None, -0.7])
    expression = live.heat_chart(table, 3)["encoding"]["x"]["axis"]["labelExpr"]
    names, end = json.JSONDecoder().raw_decode(expression)
    assert expression[end:] == "[datum.value]"
    assert names == ["A", "'];alert(1)//\"\\"]


def test_objectives_differ_by_dash_too():
    encoding = live.curve_chart(20, ["NLL", "DEL", "DEFT", "EMO"], "nats", legend=True)["encoding"]
    dashes = encoding["strokeDash"]["scale"]["range"]
    assert len({tuple(dash) for dash in dashes}) == 4
    assert encoding["strokeDash"]["scale"]["domain"] == encoding["color"]["scale"]["domain"]
    json.dumps(encoding, allow_nan=False)
