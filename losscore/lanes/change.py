"""Two readings of one text, before a fine-tune and after it: side by side, as differences, and in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from losscore.lanes.lane import ENTROPY, RANK, Array, P, format_value
from losscore.lanes.payload import Table, strip_payload

_WATCHED = {lane.column: lane for lane in (P, ENTROPY, RANK)}
# The full colour of a difference: 3 nats is a choice among 20 turned into none, a factor of 1,000 a rank of 1,000
# turned into the first guess. What goes further has the same colour.
_MOST_NATS = 3.0
_MOST_TIMES = 1000.0
# Two runs over one text by one model differ by float32 rounding.
_ROUNDING = 1e-6
_LONGEST = 24


class Change(NamedTuple):
    """One token whose p changed: its row, the token as shown, p before and after."""

    row: int
    token: str
    before: float
    after: float


@dataclass(frozen=True)
class _Difference:
    """One column as a difference; place(before, after) is -1 (fell most) to 1 (rose most), 0 where nothing changed."""

    column: str
    title: str
    name: str
    line: str
    low: str
    high: str
    low_hue: str
    hue: str
    place: Callable[[Array, Array], Array]
    unit: float = 1.0

    def lane(self, base: Table, tuned: Table) -> dict[str, Any]:
        before, after = _column(base, self.column), _column(tuned, self.column)
        with np.errstate(divide="ignore", invalid="ignore"):
            fill = np.clip(50 + 50 * self.place(before, after), 0, 100)
        known = np.isfinite(fill)
        return {
            "key": self.column,
            "title": self.title,
            "name": self.name,
            "line": self.line,
            "low": self.low,
            "high": self.high,
            "scale": "diverging",
            "hue": self.hue,
            "low_hue": self.low_hue,
            "neutral": "no change",
            "blank": "no prediction",
            "fill": [round(float(place)) if there else None for place, there in zip(fill, known, strict=True)],
            "value": [
                _arrow(a / self.unit, b / self.unit) if there else None
                for a, b, there in zip(before.tolist(), after.tolist(), known, strict=True)
            ],
        }


def watch_payload(before: Table, now: Sequence[tuple[str, Table]], column: str = "p") -> dict[str, Any]:
    """The strip's JSON of one column (p, entropy or rank) before and now: a pane "Before", then one pane per
    (title, table) of `now`, all on that lane's own colour scale.

    With the same titles, only fills and values differ from step to step, so that the strip repaints in place.
    Raises ValueError where the tables hold different tokens, or for another column.
    """
    if column not in _WATCHED:
        raise ValueError(f"column must be one of {', '.join(_WATCHED)}, not {column!r}")
    _same_tokens(before, *(table for _, table in now))
    lane = _WATCHED[column]
    payload = strip_payload(before, lanes=[lane])
    panes = [("before", "Before", payload["lanes"][0])]
    for index, (title, table) in enumerate(now):
        panes.append((f"now-{index}", title, strip_payload(table, lanes=[lane])["lanes"][0]))
    payload["lanes"] = [drawn | {"key": key, "title": title, "name": lane.title} for key, title, drawn in panes]
    return payload


def change_payload(base: Table, tuned: Table, *, bits: bool = False) -> dict[str, Any]:
    """The strip's JSON of what changed from `base` to `tuned`: p and entropy as differences, rank as a ratio.

    50 is no change; full colour is a change of p by 1, of entropy by 3 nats, of rank by a factor of 1,000.
    bits: entropy in bits, not nats. Raises ValueError where the tables hold different tokens.
    """
    _same_tokens(base, tuned)
    lanes = [difference.lane(base, tuned) for difference in _differences(bits)]
    return strip_payload(base, lanes=[]) | {"lanes": lanes}


def largest_changes(base: Table, tuned: Table, count: int = 5) -> list[Change]:
    """The `count` targets whose p changed most, up or down, the largest change first; fewer where fewer changed.

    Raises ValueError where the tables hold different tokens.
    """
    rows, before, after = _targets(base, tuned)
    moved = np.abs(after - before)
    order = [int(at) for at in np.argsort(-moved, kind="stable")[:count] if moved[at] > _ROUNDING]
    return [_change(base, rows, before, after, at) for at in order]


def change_words(base: Table, tuned: Table, row: int, *, bits: bool = False) -> str:
    """One token's change in words, "p 0.120 → 0.830 · entropy 2.10 → 0.400 nats · rank 120 → 3".

    "" where nothing predicts it. Raises ValueError where the tables hold different tokens.
    """
    _same_tokens(base, tuned)
    unit, name = (math.log(2), "bits") if bits else (1.0, "nats")
    pairs = {column: (_column(base, column)[row], _column(tuned, column)[row]) for column in _WATCHED}
    if not all(math.isfinite(value) for pair in pairs.values() for value in pair):
        return ""
    entropy = _arrow(pairs["entropy"][0] / unit, pairs["entropy"][1] / unit)
    return f"p {_arrow(*pairs['p'])} · entropy {entropy} {name} · rank {_arrow(*pairs['rank'])}"


def summary(base: Table, tuned: Table) -> str:
    """What changed and where, in one plain sentence: mean p of the targets, and where p rose and fell most.

    Raises ValueError where the tables hold different tokens.
    """
    rows, before, after = _targets(base, tuned)
    if not len(rows):
        return "Nothing is scored in this text, so nothing can have changed."
    change = after - before
    if not (np.abs(change) > _ROUNDING).any():
        return "Nothing changed: every target has the p it had before."
    old, new = format_value(float(before.mean())), format_value(float(after.mean()))
    if old == new:
        said = f"Mean p over the targets stayed at {new}"
    else:
        verb = "rose" if after.mean() > before.mean() else "fell"
        said = f"Mean p over the targets {verb} from {old} to {new}"
    ends = [("rose", int(change.argmax())), ("fell", int(change.argmin()))]
    where = [
        f"p {verb} most at {_quoted(_change(base, rows, before, after, at))}"
        for verb, at in ends
        if (change[at] if verb == "rose" else -change[at]) > _ROUNDING
    ]
    return f"{said}; {', and '.join(where)}."


def _differences(bits: bool) -> tuple[_Difference, ...]:
    unit, name = (math.log(2), "bits") if bits else (1.0, "nats")
    most = f"{format_value(_MOST_NATS / unit)} {name} or more"
    times = format_value(_MOST_TIMES)
    return (
        _Difference(
            "p", "p", "probability, base → tuned",
            "How much likelier the tuned model finds this token.",
            "fell by 1", "rose by 1", "vermillion", "blue",
            lambda before, after: after - before,
        ),
        _Difference(
            "entropy", "Entropy", "H, base → tuned",
            "Fell: the tuned model is more decided here, whatever came.",
            f"fell by {most}", f"rose by {most}", "green", "purple",
            lambda before, after: (after - before) / _MOST_NATS,
            unit,
        ),
        _Difference(
            "rank", "Rank", "R, base → tuned",
            "Smaller is better: 1 is the first guess, so what fell was learned.",
            f"fell, better · ÷{times}", f"rose, worse · ×{times}", "blue", "vermillion",
            lambda before, after: np.log(after / before) / math.log(_MOST_TIMES),
        ),
    )  # fmt: skip


def _same_tokens(first: Table, *others: Table) -> None:
    tokens = list(first.columns["token"])
    if any(list(table.columns["token"]) != tokens for table in others):
        raise ValueError("the tables must hold the same tokens")


def _targets(base: Table, tuned: Table) -> tuple[np.ndarray[Any, np.dtype[np.intp]], Array, Array]:
    """Rows that are targets with a known p in both tables, and p at them before and after."""
    _same_tokens(base, tuned)
    before, after = _column(base, "p"), _column(tuned, "p")
    is_target = np.asarray(base.columns["is_target"], dtype=bool)
    rows = np.flatnonzero(is_target & np.isfinite(before) & np.isfinite(after))
    return rows, before[rows], after[rows]


def _column(table: Table, name: str) -> Array:
    return np.asarray(table.columns[name], dtype=np.float64)


def _change(table: Table, rows: np.ndarray[Any, np.dtype[np.intp]], before: Array, after: Array, at: int) -> Change:
    row = int(rows[at])
    return Change(row, str(table.columns["token"][row]), float(before[at]), float(after[at]))


def _quoted(change: Change) -> str:
    token = change.token if len(change.token) <= _LONGEST else f"{change.token[: _LONGEST - 1]}…"
    return f"“{token}”, from {format_value(change.before)} to {format_value(change.after)}"


def _arrow(before: float, after: float) -> str:
    return f"{format_value(before)} → {format_value(after)}"
