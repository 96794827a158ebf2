"""The pictures of the Objectives page: weights side by side, the landscape, the gates, where the gradient goes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import streamlit as st

from app import session
from app.components.picture import numbers, picture
from app.components.strip import mount
from losscore.comparison import NORMALISATIONS, disagreement, gradient_by_p, most_disputed, normalise, rank_correlation
from losscore.figures import (
    Contours,
    correlation_figure,
    gates_figure,
    gradient_figure,
    landscape_figure,
    ranks_figure,
)
from losscore.landscape import curve, plane, probabilities
from losscore.lanes.weights import WeightLane, weights_payload
from losscore.reading import verdict
from losscore.weighing import gradient, target_rows

if TYPE_CHECKING:
    from losscore.objectives import Objective
    from losscore.sheet import Sheet

_HOW = {"mean": "Mean 1", "share": "Share of all", "rank": "Rank in the text"}
_ORDER = {"text": "As in the text", "disagreement": "Most disputed first"}


@st.fragment
def weights_section(sheet: Sheet, request: session.Request, objectives: list[Objective], table: dict[str, Any]) -> None:
    """The weight of every objective on every token, the selected token's verdicts, the rank correlations."""
    left, right = st.columns(2)
    how = left.segmented_control(
        "Make comparable by",
        NORMALISATIONS,
        format_func=_HOW.__getitem__,
        default="mean",
        key="how",
        required=True,
        help="Objectives weigh on different scales. Mean 1: divided by the objective's mean over the text. Share: of "
        "its sum. Rank: from its smallest to its largest. The tooltip always gives the raw weight.",
    )
    order = right.segmented_control(
        "Order of the tokens", list(_ORDER), format_func=_ORDER.__getitem__, default="text", key="order", required=True
    )
    st.markdown(
        "**How to read it.** Under each token one bar per objective: the longer, the more of that objective's push "
        "goes there. Cross-entropy (NLL) pushes on all alike; click a token to see why the others don't."
    )
    spread = disagreement(table)
    rows = None if order == "text" else most_disputed(spread)
    lanes = [
        WeightLane(
            objective.name,
            objective.title,
            objective.kind,
            objective.idea,
            table[objective.label],
            normalise(table[objective.label], how),
            how,
        )
        for objective in objectives
    ]
    payload = weights_payload(sheet, lanes, rows)
    row = _strip(payload, rows, sheet, request, f"{how}-{order}-{_name(objectives, table)}")
    _verdicts(sheet, row, objectives, table)
    numbers(_weights_frame(sheet, table, spread), "weights")
    if len(objectives) > 1:
        correlation = rank_correlation({o.title: table[o.label] for o in objectives})
        st.markdown("#### Do they agree?")
        picture(
            correlation_figure(correlation),
            key="correlation",
            read="Spearman's rank correlation of two objectives' weights over the text: 1 where they order the tokens "
            "alike, −1 where they order them the other way round; – where one weighs all alike.",
            alt="Matrix of rank correlations between the chosen objectives.",
            data=correlation,
        )


def _strip(
    payload: dict[str, Any], rows: list[int] | None, sheet: Sheet, request: session.Request, variant: str
) -> int:
    """The strip of weights; its index is one of `rows`, the selection a row of the sheet."""
    key = f"weights-{session.signature(request)}-{hashlib.sha256(variant.encode()).hexdigest()[:8]}"
    shown = list(range(len(sheet))) if rows is None else rows
    targets = target_rows(sheet)
    now = session.selected(request, int(targets[0]))
    start = session.start_row("objectives", key, now)
    chosen = shown[mount(payload, key, shown.index(start) if start in shown else 0)]
    session.select(request, chosen)
    return chosen


def _verdicts(sheet: Sheet, row: int, objectives: list[Objective], table: dict[str, Any]) -> None:
    """For the selected token, every objective from the one that lets go to the one that pushes most."""
    with st.container(border=True, key="verdicts"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"#### Token {row + 1} of {len(sheet)}", width="content")
            st.code(sheet.columns["token"][row], language=None, width="content", wrap_lines=True)
        known = {name: sheet.value(name, row) for name in ("p", "entropy", "rank", "expected_rank", "concentration")}
        if known["p"] is None or np.isnan([table[o.label][row] for o in objectives]).all():
            st.markdown("No objective pushes on this token: it is no target, or nothing predicts it.")
            return
        st.markdown(
            f"p = {known['p']:.3g} · entropy {known['entropy']:.3g} nats · rank {known['rank']:,.0f} where "
            f"{known['expected_rank']:,.3g} was expected · concentration {known['concentration']:.3g}"
        )
        lines = ["| objective | weight | it … | because | formula |", "|---|---:|---|---|---|"]
        for objective in sorted(objectives, key=lambda o: np.nan_to_num(table[o.label][row], nan=-1.0)):
            weight = float(table[objective.label][row])
            number = "–" if np.isnan(weight) else f"{weight:.3g}"
            lines.append(
                f"| **{objective.title}** | {number} | {verdict(weight)} | {objective.idea} | ${objective.formula}$ |"
            )
        st.markdown("\n".join(lines))


def landscape_section(
    sheet: Sheet, request: session.Request, objectives: list[Objective], table: dict[str, Any]
) -> None:
    """One objective's weight over p and entropy, or over the two ranks."""
    left, right = st.columns(2)
    titles = {objective.name: objective for objective in objectives}
    # Plain cross-entropy weighs all alike: a picture of one colour.
    start = list(titles).index("ranktuner") if "ranktuner" in titles else len(titles) - 1
    name = left.selectbox(
        "Objective", list(titles), index=start, format_func=lambda n: titles[n].title, key="landscape-objective"
    )
    plane_kind = right.segmented_control(
        "Axes", ["p and entropy", "expected rank and rank"], default="p and entropy", key="axes", required=True
    )
    objective, rows = titles[name], target_rows(sheet)
    weights, selected = table[objective.label], session.selected(request, -1)
    data = pd.DataFrame(
        {
            "token": [sheet.columns["token"][row] for row in rows],
            **{c: np.asarray(sheet.columns[c])[rows] for c in ("p", "entropy", "rank", "expected_rank")},
            "weight": weights[rows],
        },
        index=pd.Index(rows, name="position"),
    )
    alt = f"Scatter plot of the text's tokens, coloured by the weight of {objective.title}."
    if plane_kind == "expected rank and rank":
        picture(
            ranks_figure(sheet, rows, weights, selected=selected),
            key="ranks",
            read="Each dot is a token. Over the dashed line the token ranks worse than expected: RankTuner pushes more "
            "there (under-learned), less below. The dotted lines are this text's medians.",
            alt=alt,
            data=data,
        )
        return
    p, entropy = np.geomspace(1e-6, 0.999, 60), np.linspace(0.01, np.log(int(sheet.provenance["vocabulary"])), 50)
    grid = plane(objective, p, entropy, int(sheet.provenance["vocabulary"]))
    lines = (
        "The lines join places of equal weight." if grid is not None else "It is no function of p and entropy alone."
    )
    picture(
        landscape_figure(
            sheet,
            rows,
            weights,
            selected=selected,
            contours=None if grid is None else Contours(p, entropy, grid),
            noise=name == "ranktuner",
        ),
        key="landscape",
        read="Each dot is a token: right is likely, up is undecided; colour is the objective's weight. " + lines,
        alt=alt,
        data=data,
    )


def gates_section(sheet: Sheet, request: session.Request, objectives: list[Objective], table: dict[str, Any]) -> None:
    """Weight and weight x error against p, for a chosen spread of the rest of the distribution."""
    left, right = st.columns(2)
    others = left.select_slider(
        "The rest of the mass is spread evenly over",
        [1, 2, 5, 10, 20, 50, 100, 500, 1000],
        value=10,
        format_func=lambda count: f"{count} other token{'' if count == 1 else 's'}",
        key="others",
        help="1: the model is torn between the target and one other token. 1,000: it has no idea.",
    )
    push = right.segmented_control("Show", ["gate", "gate × error"], default="gate", key="gate-or-push", required=True)
    vocabulary, rows, p = int(sheet.provenance["vocabulary"]), target_rows(sheet), probabilities()
    drawn = {o.title: curve(o, p, others, vocabulary) for o in objectives}
    curves = {title: found for title, found in drawn.items() if found is not None}
    own_p = np.asarray(sheet.columns["p"], dtype=np.float64)[rows]
    points = {o.title: (own_p, table[o.label][rows]) for o in objectives}
    left_out = [title for title, found in drawn.items() if found is None]
    read = (
        "The lines say how hard each objective would push on a token of probability p if the rest were spread as the "
        "slider says; the dots are this text's tokens, whose rest is spread as it is."
    )
    if left_out:
        read += f" Dots only for {', '.join(left_out)}: no line can be drawn from p and the spread alone."
    picture(
        gates_figure(curves, points, push=push == "gate × error"),
        key="gates",
        read=read,
        alt="Curves of the chosen objectives' gates against p, with the text's tokens as dots.",
        data=pd.DataFrame({"p": p, **{title: found.weight for title, found in curves.items()}}),
    )


@st.fragment
def gradient_section(
    sheet: Sheet, request: session.Request, objectives: list[Objective], table: dict[str, Any]
) -> None:
    """Where each objective's gradient goes, by bins of p and per token."""
    slow = any(objective.needs_distribution for objective in objectives)
    model = session.model(request.model, request.dtype) if slow else None
    norms = {o.title: gradient(sheet, o, model) for o in objectives}
    shares = gradient_by_p(np.asarray(sheet.columns["p"], dtype=np.float64), norms)
    picture(
        gradient_figure(shares, list(norms)),
        key="gradient",
        read="For each objective, its bars add up to 100 %: how much of all its gradient on the logits comes from "
        "tokens of that range of p. An objective that trusts the model has its bars to the right.",
        alt="Bar chart of the share of each objective's gradient by ranges of p.",
        data=shares,
    )
    st.markdown("#### Token by token")
    st.markdown(
        "**How to read it.** Under each token one bar per objective: its share of all that objective's gradient. The "
        "tooltip gives Σ |dL/dz|, how far the token pushes the logits."
    )
    lanes = [
        WeightLane(o.name, o.title, o.kind, o.idea, norms[o.title], normalise(norms[o.title], "share"), "share")
        for o in objectives
    ]
    _strip(weights_payload(sheet, lanes), None, sheet, request, f"gradient-{_name(objectives, table)}")
    rows = target_rows(sheet)
    per_token = pd.DataFrame(
        {
            "token": [sheet.columns["token"][row] for row in rows],
            **{title: norm[rows] for title, norm in norms.items()},
        },
        index=pd.Index(rows, name="position"),
    )
    numbers(per_token, "gradient-tokens")


def _name(objectives: list[Objective], table: dict[str, Any]) -> str:
    return "|".join(f"{o.name}{o.values}{np.nansum(table[o.label]):.6g}" for o in objectives)


def _weights_frame(sheet: Sheet, table: dict[str, Any], spread: Any) -> pd.DataFrame:
    rows = target_rows(sheet)
    return pd.DataFrame(
        {
            "token": [sheet.columns["token"][row] for row in rows],
            **{f"weight_{name}": weights[rows] for name, weights in table.items()},
            "disagreement": spread[rows],
        },
        index=pd.Index(rows, name="position"),
    )
