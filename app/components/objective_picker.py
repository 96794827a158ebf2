"""Which objectives to compare, with their hyperparameters, and one's own formula."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app.components.plain import plain
from losscore.errors import LosscoreError
from losscore.objectives import CATALOGUE, Objective, Parameter, from_formula

_FIRST = ("nll", "dft", "eaft", "ranktuner", "cayley", "deft", "del_loss")


def pick_objectives() -> list[Objective]:
    """The chosen objectives in the catalogue's order, the person's own formula last."""
    left, right = st.columns([5, 2], vertical_alignment="bottom")
    names = left.multiselect(
        "Objectives",
        list(CATALOGUE),
        default=list(_FIRST),
        format_func=lambda name: CATALOGUE[name].title,
        key="objectives",
        bind="query-params",
        help="Digit terms (DEL penalty, NTL, DIST2Loss) push on digits only. OverTone and EMO look at the whole "
        "distribution and so run the model again.",
    )
    chosen = [CATALOGUE[name] for name in CATALOGUE if name in names]
    with right.popover("Parameters", icon="🎚️", width="stretch"):
        chosen = adjusted(chosen)
    return chosen + _own_formula()


def adjusted(objectives: list[Objective]) -> list[Objective]:
    """The objectives with the hyperparameters that a person sets here."""
    adjustable = [objective for objective in objectives if objective.parameters]
    if not adjustable:
        st.caption("None of the chosen objectives has a parameter.")
    set_to = {objective.name: _controls(objective) for objective in adjustable}
    return [objective.with_parameters(**set_to.get(objective.name, {})) for objective in objectives]


def about_objectives(objectives: list[Objective]) -> None:
    """Idea, formula, source and where published code differs, for each of `objectives`."""
    with st.expander("About these objectives"):
        for objective in objectives:
            source = f"arXiv {objective.paper}" if objective.paper else ""
            st.markdown(f"**{objective.title}** ({objective.kind}) {source}  \n{objective.idea}")
            st.latex(objective.formula)
            if objective.differs:
                st.caption(plain(objective.differs))


def _controls(objective: Objective) -> dict[str, Any]:
    st.markdown(f"**{objective.title}**")
    return {name: _control(objective, parameter) for name, parameter in objective.parameters.items()}


def _control(objective: Objective, parameter: Parameter) -> Any:
    key = f"parameter-{objective.name}-{parameter.name}"
    if parameter.choices:
        start = parameter.choices.index(str(parameter.default))
        return st.selectbox(parameter.name, parameter.choices, index=start, help=parameter.meaning, key=key)
    if isinstance(parameter.default, bool):
        return st.toggle(parameter.name, value=parameter.default, help=parameter.meaning, key=key)
    return st.number_input(
        parameter.name,
        min_value=float(parameter.low),
        max_value=float(parameter.high),
        value=float(parameter.default),
        step=0.01 if parameter.high <= 1 else 0.1,
        format="%.3g",
        help=parameter.meaning,
        key=key,
    )


def formula_box() -> str:
    """A person's own weight as it is typed; empty where there is none."""
    return st.text_input(
        "Your own weight (optional)",
        key="formula",
        placeholder="p**0.3 * (1 - entropy/log(V))",
        help="Arithmetic over p, log_p, entropy (nats), rank, expected_rank, concentration, top_entropy and V, the "
        "size of the vocabulary; functions log, log2, exp, sqrt, abs, min, max. The loss is −weight · log p.",
    ).strip()


def _own_formula() -> list[Objective]:
    text = formula_box()
    try:
        return [from_formula(text)] if text else []
    except LosscoreError as error:
        st.error(plain(str(error)))
        return []
