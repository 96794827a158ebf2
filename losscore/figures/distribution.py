"""The distribution at one token, its most probable tokens and at a digit the ten digits: Vega-Lite bars and their rows.

The specification is the same for every token, so that a click changes rows only.
"""

from __future__ import annotations

import numpy as np

from losscore.figures.live import Chart, Rows, distinct, short
from losscore.figures.style import BARS
from losscore.lanes.lane import format_value
from losscore.sheet import Sheet

TARGET, OTHER, REST = BARS
_LONGEST = 18
# Em spaces: of ordinary ones only the first would be drawn, and "1 0.187" is no number.
_GAP = "\u2003\u2003"


def top_tokens_rows(sheet: Sheet, row: int) -> Rows:
    """Bars of the most probable tokens at `row`, the target marked wherever its rank, and the rest of the mass.

    Nothing where nothing predicts the token.
    """
    if not sheet.top_tokens[row] or sheet.top_ids is None or sheet.top_log_p is None:
        return []
    target = int(sheet.columns["id"][row])
    ids, p = sheet.top_ids[row].tolist(), np.exp(sheet.top_log_p[row]).tolist()
    bars = [
        (token, value, TARGET if i == target else OTHER, format_value(value))
        for i, token, value in zip(ids, sheet.top_tokens[row], p, strict=True)
    ]
    if target not in ids:
        own, rank = float(sheet.columns["p"][row]), int(sheet.columns["rank"][row])
        bars.append((str(sheet.columns["token"][row]), own, TARGET, f"rank {rank:,} · {format_value(own)}"))
    others = int(sheet.provenance["vocabulary"]) - len(bars)
    if others > 0:
        rest = max(0.0, 1 - sum(value for _, value, *_ in bars))
        bars.append((f"all {others:,} others", rest, REST, format_value(rest) if rest > 1e-12 else "almost 0"))
    return _rows(bars)


def digits_rows(sheet: Sheet, row: int) -> Rows:
    """The ten digits' probabilities at `row`, renormalised over them, the target marked; nothing at other rows."""
    if row not in sheet.p_digits:
        return []
    digit = int(sheet.columns["digit"][row])
    return _rows(
        [(str(d), p, TARGET if d == digit else OTHER, format_value(p)) for d, p in enumerate(sheet.p_digits[row])]
    )


def bars_chart(title: str) -> Chart:
    """One bar a row, from the top down; the values stand beside the names, where the page's colours reach them."""
    return {
        "title": title,
        "height": {"step": 21},
        "mark": {"type": "bar"},
        "encoding": {
            "y": {
                "field": "bar",
                "type": "nominal",
                "sort": {"field": "place", "op": "min"},
                "title": None,
                "axis": {"labelLimit": 280, "ticks": False, "labelOverlap": False},
            },
            "x": {
                "field": "p",
                "type": "quantitative",
                "title": None,
                "axis": {"format": "~%", "tickCount": 5},
            },
            "color": {
                "field": "kind",
                "type": "nominal",
                "scale": {"domain": list(BARS), "range": list(BARS.values())},
                "legend": None,
            },
            "tooltip": [
                {"field": "token", "title": "token"},
                {"field": "kind", "title": "what"},
                {"field": "p", "title": "p", "format": ".3~g"},
            ],
        },
    }


def _rows(bars: list[tuple[str, float, str, str]]) -> Rows:
    marks = {TARGET: " ◀ target"}
    # Isolated: a script that runs leftwards would turn the number beside it.
    names = distinct(
        [f"\u2068{short(token, _LONGEST)}\u2069{marks.get(kind, '')}{_GAP}{note}" for token, _, kind, note in bars]
    )
    return [
        {"place": place, "bar": name, "token": token, "kind": kind, "p": p}
        for place, (name, (token, p, kind, _)) in enumerate(zip(names, bars, strict=True))
    ]
