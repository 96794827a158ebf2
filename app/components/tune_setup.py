"""What a person sets before a fine-tune: what to learn, with which objectives, how far."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import streamlit as st

from app import session
from app.components.objective_picker import adjusted, formula_box
from app.components.plain import plain
from losscore.errors import LosscoreError
from losscore.finetuning.probes import shipped_probes
from losscore.finetuning.settings import LEARNING_RATES, METHODS, MOST_STEPS, Settings
from losscore.objectives import CATALOGUE, Objective, from_formula
from losscore.text.examples import Example, parse_examples
from losscore.text.source import read_text

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

MOST_OBJECTIVES = 4
_SOURCES = {"text": "Tokens page's text", "pairs": "My own pairs"}
_METHODS = {"lora": "LoRA", "full": "All weights"}
_PLACEHOLDER = '{"prompt": "What is 6 * 7?\\n", "response": "42"}\n{"prompt": "…", "response": "…"}'


@dataclass(frozen=True)
class Order:
    """What was asked for: a model's name, what it learns, how. request: the Tokens page's text where it learns that."""

    model: str
    examples: tuple[Example, ...]
    objectives: tuple[Objective, ...]
    settings: Settings
    probes: tuple[str, ...]
    request: session.Request | None

    @property
    def learned(self) -> str:
        """What is learned, on one line."""
        if self.request is None:
            return f"{len(self.examples)} example{'' if len(self.examples) == 1 else 's'}"
        return one_line(self.request.text)


def setup() -> tuple[Order | str, DeltaGenerator]:
    """The controls: what is asked for, or a sentence on what is missing; and the place of the button."""
    request = session.remembered()
    # A tuned model is not tuned again: the run starts from its base.
    request = replace(request, model=session.base_of(request.model) or request.model)
    try:
        examples, from_text = _examples(request)
        wrong = ""
    except LosscoreError as error:
        examples, from_text, wrong = (), False, str(error)
    left, middle, right, button = st.columns([5, 2, 2, 2], vertical_alignment="bottom")
    picked = _objectives(left)
    steps = middle.number_input(
        "Steps",
        0,
        MOST_STEPS,
        20,
        5,
        key="tune-steps",
        persist_state="session",
        help="How many updates. 20 are enough to see the model learn one text by heart.",
    )
    with right.popover("Settings", icon="⚙️", width="stretch"):
        with st.expander("Parameters of the objectives"):
            adjustable, formula = adjusted(picked), formula_box()
        settings, probes = _settings(request.bos)
    try:
        objectives = (*adjustable, *([from_formula(formula)] if formula else []))
    except LosscoreError as error:
        objectives, wrong = (), wrong or str(error)
    wrong = wrong or _missing(examples, objectives)
    if wrong:
        return wrong, button
    settings = replace(settings, steps=int(steps))
    return Order(request.model, examples, objectives, settings, probes, request if from_text else None), button


def _examples(request: session.Request) -> tuple[tuple[Example, ...], bool]:
    """What to learn, and whether it is the text of the Tokens page."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        kind = st.segmented_control(
            "Learn",
            list(_SOURCES),
            format_func=_SOURCES.__getitem__,
            default="text",
            key="tune-source",
            required=True,
            persist_state="session",
            help="What the model is trained on. My own pairs: prompts and responses, pasted or as a file. With a "
            "prompt, only the response is trained on.",
        )
        if kind == "text":
            st.code(one_line(request.text) or "(no text)", language=None, width="content", wrap_lines=True)
            st.page_link("views/tokens.py", label="Change it", icon="✏️", width="content")
    if kind != "text":
        return _pairs(), False
    return ((Example(request.prompt or "", request.text),) if request.text.strip() else ()), True


def _pairs() -> tuple[Example, ...]:
    left, right = st.columns([3, 2])
    pasted = left.text_area(
        "Paste them, one JSON object a line, then press Ctrl+Enter",
        key="tune-pairs",
        height=110,
        placeholder=_PLACEHOLDER,
        persist_state="session",
        help='Each line needs "response" and perhaps "prompt", or "text" alone. They are joined as they are.',
    )
    upload = right.file_uploader("Or a JSONL file", type=["jsonl", "json", "txt"], key="tune-upload")
    if upload is not None:
        text, notes = read_text(upload.getvalue(), upload.name)
        for note in notes:
            right.caption(f"ℹ️ {plain(note)}")
        return tuple(parse_examples(text, upload.name))
    return tuple(parse_examples(pasted or "", "What you pasted"))


def _objectives(place: DeltaGenerator) -> list[Objective]:
    names = place.multiselect(
        "Objective (pick up to four to race)",
        list(CATALOGUE),
        default=["nll"],
        format_func=lambda name: CATALOGUE[name].title,
        max_selections=MOST_OBJECTIVES,
        key="tune-objectives",
        persist_state="session",
        help="The loss that the model is trained with; NLL is plain cross-entropy. Several start from the same model "
        "and make one step each in turn.",
    )
    return [CATALOGUE[name] for name in CATALOGUE if name in names]


def _settings(bos: str) -> tuple[Settings, tuple[str, ...]]:
    method = st.segmented_control(
        "What trains",
        list(METHODS),
        format_func=_METHODS.__getitem__,
        default="lora",
        key="tune-method",
        required=True,
        persist_state="session",
        help="LoRA: a small adapter beside each layer; fast, and small to download. All weights: needs about five "
        "times the model's memory.",
    )
    rate = st.number_input(
        "Learning rate",
        min_value=0.0,
        max_value=1.0,
        value=None,
        step=1e-4,
        format="%.6g",
        placeholder=f"auto: {LEARNING_RATES[method]:g}",
        key="tune-lr",
        persist_state="session",
        help="How far one step goes. Empty: the value that suits what trains. Larger is faster and breaks more.",
    )
    seed = st.number_input(
        "Seed", 0, 10_000, 0, 1, key="tune-seed", persist_state="session", help="The adapter's random start."
    )
    rank = st.number_input(
        "Rank of the adapter",
        1,
        256,
        8,
        1,
        key="tune-rank",
        persist_state="session",
        disabled=method != "lora",
        help="LoRA only: how much the adapter can hold.",
    )
    probe_every = st.number_input(
        "Look elsewhere every … steps",
        1,
        MOST_STEPS,
        5,
        1,
        key="tune-probe-every",
        persist_state="session",
        help="How often the other texts below are measured. Each look takes about as long as a step.",
    )
    batch = st.number_input(
        "Examples a step",
        min_value=1,
        value=None,
        step=1,
        placeholder="all",
        key="tune-batch",
        persist_state="session",
        help="Empty: every step sees all examples.",
    )
    own = st.text_area(
        "Other texts to look at, instead of the shipped ones",
        key="tune-probes",
        height=90,
        placeholder="One text a line, or texts with an empty line between them.",
        persist_state="session",
        help="The model is not trained on them. They show what the fine-tune costs elsewhere.",
    )
    settings = Settings(
        lr=rate,
        method=method,
        seed=int(seed),
        rank=int(rank),
        batch=None if batch is None else int(batch),
        probe_every=int(probe_every),
        bos=bos,
    )
    return settings, split_texts(own or "") or tuple(shipped_probes())


def split_texts(text: str) -> tuple[str, ...]:
    """Texts apart by empty lines where there are any, else one a line; blank ones are left out."""
    text = text.replace("\r\n", "\n")
    parts = text.split("\n\n") if "\n\n" in text.strip() else text.split("\n")
    return tuple(part.strip("\n") for part in parts if part.strip())


def _missing(examples: tuple[Example, ...], objectives: tuple[Objective, ...]) -> str:
    if not examples:
        return "Give the model something to learn: a text on the Tokens page, or prompts and responses here."
    if not any(example.response.strip() for example in examples):
        return "Every response is empty, so there is nothing to learn: write at least one."
    if len(objectives) > MOST_OBJECTIVES:
        return f"At most {MOST_OBJECTIVES} objectives race at a time: leave one out."
    return "" if objectives else "Pick at least one objective."


def one_line(text: str) -> str:
    """The start of a text, its line breaks as marks."""
    shown = text if len(text) <= 70 else f"{text[:69]}…"
    return shown.replace("\n", " ⏎ ")
