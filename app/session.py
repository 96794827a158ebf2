"""What is kept between reruns and shared between people: models, sheets, examples."""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from losscore.errors import LosscoreError

if TYPE_CHECKING:
    from losscore.memory import Memory
    from losscore.models import Model
    from losscore.sheet import Sheet

FIRST_TOKENS = 2000
DRAWN_TOKENS = 5000
MOST_TUNED = 4
# No folder, file or Hugging Face id starts like this.
_TUNED = "tuned:"
# Nor does one hold this character.
_READ_WITH = "\0"
_EXAMPLES = Path(__file__).resolve().parent.parent / "assets" / "examples.json"


@dataclass(frozen=True)
class Request:
    """All that a sheet depends on."""

    model: str
    text: str
    prompt: str | None
    bos: str
    parse_special: bool
    limit: int | None = FIRST_TOKENS
    dtype: str = "float32"


class SheetStore:
    """The sheets asked for last, shared by all sessions; the same request is computed once, others wait for it.

    At most `size` sheets are kept, and of more than one at most `tokens` rows in all.
    """

    def __init__(self, size: int = 64, tokens: int = 1_000_000) -> None:
        self._size = size
        self._tokens = tokens
        self._sheets: OrderedDict[Request, Sheet] = OrderedDict()
        self._running: dict[Request, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, request: Request, compute: Callable[[], Sheet]) -> Sheet:
        """The sheet of `request`, from the store or by `compute`; an error in `compute` leaves nothing behind."""
        with self._lock:
            running = self._running.setdefault(request, threading.Lock())
        with running:
            with self._lock:
                if request in self._sheets:
                    self._sheets.move_to_end(request)
                    return self._sheets[request]
            try:
                sheet = compute()
                with self._lock:
                    self._sheets[request] = sheet
                    while len(self._sheets) > self._size or (len(self._sheets) > 1 and self._held() > self._tokens):
                        self._sheets.popitem(last=False)
            finally:
                with self._lock:
                    self._running.pop(request, None)
            return sheet

    def known(self, request: Request) -> Sheet | None:
        """The sheet of `request` where it is in the store."""
        with self._lock:
            return self._sheets.get(request)

    def _held(self) -> int:
        return sum(map(len, self._sheets.values()))


@st.cache_resource(show_spinner=False)
def sheets() -> SheetStore:
    """The store of this server."""
    return SheetStore()


@st.cache_resource(show_spinner=False, max_entries=3)
def _model(name: str, dtype: str) -> Model:
    import losscore

    name, _, tokenizer = name.partition(_READ_WITH)
    return losscore.load(name, tokenizer=tokenizer or None, dtype=dtype)


def with_tokenizer(name: str, tokenizer: str) -> str:
    """The model `name` as another tokenizer reads for it, a folder's or an id's: takes the place of its name."""
    return f"{name}{_READ_WITH}{tokenizer.strip()}" if tokenizer.strip() else name


def model(name: str, dtype: str = "float32") -> Model:
    """The model of that name: shared, loaded once, never changed; or a tuned one of this session, by its key.

    A tuned one computes in float32 whatever is asked for.

    Raises LosscoreError, one sentence, for a tuned one that this session doesn't have.
    """
    if is_tuned(name):
        if name not in _tuned():
            raise LosscoreError(
                "This fine-tuned model is no longer there: pick another model on the Tokens page, or fine-tune again."
            )
        return _tuned()[name].model
    with st.spinner("Loading the model … (the first time it is unpacked, some 20 seconds)"):
        return _model(name, dtype)


def sheet(request: Request) -> Sheet:
    """Score `request`, showing progress. A rerun of the page ends a computation that is no longer wanted."""

    def compute() -> Sheet:
        import losscore

        loaded = model(request.model, request.dtype)
        bar = st.progress(0.0, "Reading the text …")

        def show(share: float) -> None:
            # Touching the page here is also what lets Streamlit stop this run.
            bar.progress(min(share, 1.0), "Reading the text …")

        try:
            return losscore.score(
                loaded,
                request.text,
                request.prompt,
                bos=request.bos,
                parse_special=request.parse_special,
                limit=request.limit,
                progress=show,
                memory=_memory(),
            )
        finally:
            bar.empty()

    return sheets().get(request, compute)


def plain_sheet(request: Request) -> Sheet | None:
    """The sheet of `request` if it is there already and says what a fine-tune sees before its first step: the whole
    text, in float32, control tokens read as text."""
    known = sheets().known(request)
    if known is None or request.parse_special or request.dtype != "float32" or known.provenance["tokens_left_out"]:
        return None
    return known


def _memory() -> Memory:
    """What this session's last text left behind, so that an edit at its end costs only what it changed."""
    from losscore.memory import Memory

    kept: Memory = st.session_state.setdefault("memory", Memory())
    return kept


@dataclass(frozen=True)
class Tuned:
    """A fine-tuned model of this session, and the name of the model that it started from."""

    label: str
    model: Model
    base: str


def add_tuned(label: str, model: Model, base: str) -> str:
    """Offer a fine-tuned model on the pages of this session and return its key, which takes the place of a name.

    No two models of the server share a key, and so no two share a sheet; the same model keeps its own. A session
    holds the latest MOST_TUNED of them, and its end frees them.
    """
    kept = _tuned()
    for key, tuned in kept.items():
        if tuned.model is model:
            return key
    key = f"{_TUNED}{uuid.uuid4().hex}"
    kept[key] = Tuned(label, model, base)
    while len(kept) > MOST_TUNED:
        del kept[next(iter(kept))]
    return key


def tuned_models() -> dict[str, str]:
    """The tuned models of this session, the oldest first: key -> label."""
    return {key: tuned.label for key, tuned in _tuned().items()}


def base_of(key: str) -> str | None:
    """The name of the model that a tuned one started from; None for every other model."""
    tuned = _tuned().get(key)
    return tuned.base if tuned else None


def is_tuned(name: str) -> bool:
    """Whether `name` is the key of a tuned model, of whatever session."""
    return name.startswith(_TUNED)


def choose_model(name: str) -> None:
    """Make the Tokens page open with this model, a tuned one with what changed. Not while that page is drawn."""
    st.session_state.model = name
    if is_tuned(name):
        st.session_state.view = "change"


def _tuned() -> dict[str, Tuned]:
    kept: dict[str, Tuned] = st.session_state.setdefault("tuned_models", {})
    return kept


def remember(request: Request) -> None:
    """Keep `request` as the text that the other pages look at too."""
    st.session_state.request = request


def remembered() -> Request:
    """The text looked at last; the first example before anything was."""
    if "request" in st.session_state:
        kept: Request = st.session_state.request
        return kept
    first = next(iter(examples().values()))
    return Request(model_names()[0], first["text"], first.get("prompt"), "auto", False)


def signature(request: Request) -> str:
    """A short name for `request`, for keys."""
    return hashlib.sha256(repr(request).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def select(request: Request, row: int) -> None:
    """Keep the selected token of a text, for all pages."""
    st.session_state.selected = {signature(request): row}


def selected(request: Request, default: int) -> int:
    """The token of `request` that was selected last, on whatever page."""
    return int(st.session_state.get("selected", {}).get(signature(request), default))


def start_row(page: str, key: str, row: int) -> int:
    """The row a strip starts with: `row` as it was when the strip `key` first stood on this visit of `page`.

    It must not change with every click, or the browser would be sent the whole strip again.
    """
    visit = st.session_state.get("visit")
    if visit is None or visit["page"] != page:
        st.session_state.visit = visit = {"page": page, "rows": {}}
    return int(visit["rows"].setdefault(key, row))


@st.cache_data(show_spinner=False)
def examples() -> dict[str, dict[str, Any]]:
    """The shipped examples by id."""
    return {example["id"]: example for example in json.loads(_EXAMPLES.read_text("utf-8"))}


@st.cache_data(show_spinner=False, ttl=30)
def model_names() -> list[str]:
    """The models that are on this computer, the embedded one first."""
    from losscore.models import available

    return [offer.name for offer in available()]
