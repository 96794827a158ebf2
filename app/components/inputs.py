"""What a person sets: example, text, model and how it is read."""

from __future__ import annotations

import re

import streamlit as st

from app import session
from app.components.plain import plain

OWN = "own"
_MODES = {"plain": "Plain text", "pair": "Prompt + response"}
_DTYPES = ("float32", "bfloat16")
_BOS = {"auto": "As the tokenizer says", "always": "Always", "never": "Never"}
UNITS = {"nats": "nats", "bits": "bits"}
VIEWS = {"panes": "Six panes", "stripes": "Stripes"}
CHANGE = {"change": "Change since base"}
# How a tuned model is offered, and so how a link names it: the end tells it from those of other people.
_OFFERED = "{label} · tuned {mark}"
_OFFERED_ONCE = re.compile(r" · tuned [0-9a-f]{8}$")


def controls() -> tuple[session.Request, str]:
    """Example, text boxes and settings: what to score, and the example's id."""
    examples = session.examples()
    left, middle, right = st.columns([5, 4, 2], vertical_alignment="bottom")
    example = left.selectbox(
        "Start from an example",
        [*examples, OWN],
        format_func=lambda key: examples[key]["title"] if key in examples else "My own text",
        key="example",
        bind="query-params",
    )
    _load(example, examples.get(example, {"text": ""}))
    mode = middle.segmented_control(
        "Read it as",
        list(_MODES),
        format_func=_MODES.__getitem__,
        key="mode",
        required=True,
        persist_state="session",
        help="Prompt + response: both are read together, nothing is put between them, and only the response's "
        "tokens are targets.",
    )
    with right.popover("Settings", icon="⚙️", width="stretch"):
        model, bos, special, dtype = _settings()
    if st.session_state.get("tuned_model_gone"):
        st.warning(
            f"That fine-tuned model is not in this tab, so {plain(model)} is shown. A tuned model stays with the tab "
            "that made it, and only the latest few are kept."
        )
    if example in examples:
        st.markdown(f"👀 **Look for:** {examples[example]['look']}")
    prompt = st.text_area("Prompt", key="prompt", height=80, persist_state="session") if mode == "pair" else None
    text = st.text_area(
        f"{'Response' if mode == 'pair' else 'Text'}: edit it, then press Ctrl+Enter",
        key="text",
        height=90,
        placeholder="Type or paste a text.",
        persist_state="session",
    )
    return session.Request(model, text, prompt, bos, special, dtype=dtype), example


def _load(example: str, chosen: dict[str, str]) -> None:
    """Put a newly chosen example into the boxes; a text that was edited stays as it is until then."""
    if st.session_state.get("loaded_example") == example:
        return
    st.session_state.loaded_example = example
    st.session_state.text = chosen["text"]
    st.session_state.prompt = chosen.get("prompt", "")
    st.session_state.mode = "pair" if "prompt" in chosen else "plain"


def _settings() -> tuple[str, str, bool, str]:
    model = _model()
    if model.lower().endswith(".gguf"):
        model = session.with_tokenizer(model, _tokenizer())
    bos = st.selectbox(
        "Start token (BOS)",
        list(_BOS),
        format_func=_BOS.__getitem__,
        key="bos",
        bind="query-params",
        help="A token put in front of the text, so that the first word gets a prediction too. Without one, "
        "nothing predicts the first token and it stays blank.",
    )
    special = st.toggle(
        "Parse control tokens",
        key="special",
        bind="query-params",
        help="Off: a typed <|endoftext|> is ordinary text. On: it becomes the control token itself.",
    )
    dtype = st.selectbox(
        "Compute in",
        _DTYPES,
        key="dtype",
        bind="query-params",
        help="bfloat16 keeps 8 of float32's 24 bits in the model's own arithmetic: half the memory, faster on some "
        "processors, less exact. The statistics are always taken in float32 or better.",
    )
    st.caption("The address bar holds example, model and settings: copy it to share this view.")
    return model, bos, special, dtype


def _model() -> str:
    """The chosen model's name, or the key of a tuned one."""
    names = session.model_names()
    offered = {key: _OFFERED.format(label=label, mark=key[-8:]) for key, label in session.tuned_models().items()}
    if st.session_state.get("tuned_model_gone") == "new":
        st.session_state.model = names[0]
        st.session_state.tuned_model_gone = "said"
    model = st.selectbox(
        "Model",
        [*names, *offered],
        format_func=lambda name: offered.get(name, name),
        key="model",
        on_change=lambda: st.session_state.pop("tuned_model_gone", None),
        bind="query-params",
        accept_new_options=True,
        help="The embedded model needs no internet. You can also type a folder, a .gguf file, or the id of a "
        "Hugging Face causal model that is already on this computer.",
    )
    if model and model not in offered and (session.is_tuned(model) or _OFFERED_ONCE.search(model)):
        # A widget that is drawn already can only be set anew in the next run.
        st.session_state.tuned_model_gone = "new"
        st.rerun()
    return model or names[0]


def _tokenizer() -> str:
    """Where the original tokenizer of a GGUF lies; "" for the one that is rebuilt from the file."""
    return st.text_input(
        "Original tokenizer (optional)",
        key="tokenizer",
        bind="query-params",
        placeholder="a folder, or a Hugging Face id",
        help="A tokenizer rebuilt from a GGUF may cut text otherwise than the model's own. Name the folder of the "
        "original model, or its Hugging Face id if it is already on this computer. Empty: the one rebuilt.",
    )
