"""The walk: text -> encode -> run -> measure -> weigh -> sheet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from losscore.columns import COLUMNS
from losscore.errors import Cancelled, ModelError, TextError
from losscore.objectives import Objective, find
from losscore.objectives.cayley import alpha as cayley_alpha
from losscore.objectives.deft import alpha as deft_alpha
from losscore.objectives.deft import gate as trust_gate
from losscore.objectives.digit_entropy import criterion, digit_entropy, p_given_digit, penalty, place_weight
from losscore.objectives.ranktuner import indicator, scale, scale_from_bounds
from losscore.running import outputs
from losscore.sheet import Sheet
from losscore.stats import Statistics, stream
from losscore.text import Encoding, Window, plan_windows
from losscore.text.display import show_bytes
from losscore.text.encoding import mend_surrogates
from losscore.weighing import weigh

if TYPE_CHECKING:
    from losscore.models import Model

DEL_ALPHA = 0.01


def score(
    model: Model,
    text: str,
    prompt: str | None = None,
    *,
    bos: str = "auto",
    parse_special: bool = False,
    window: int | None = None,
    stride: int | None = None,
    limit: int | None = None,
    objectives: Sequence[Objective | str] = (),
    chunk: int | None = None,
    progress: Callable[[float], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Sheet:
    """Score every token of `text` with `model`: statistics, RankTuner, DEFT, Cayley and DEL.

    prompt: read before `text`, tokenised together with it; its tokens get values but are no targets.
    bos: "auto" follows the tokenizer's own setting, "always" or "never". Without a BOS the first row is blank.
    parse_special: read typed control tokens such as `<|endoftext|>` as control tokens instead of as text.
    window, stride: how a text longer than the model's context is cut (default: the context, half of it).
    limit: score only that many tokens from the start; the sheet says how many are left out.
    objectives: further objectives, or their names; each adds a column `weight_<label>`, see `losscore.weighing.weigh`.
    chunk: rows of logits held at one time; never changes a value beyond rounding.
    progress(share): called as the work goes on. stop(): return True to end with Cancelled.
    Raises LosscoreError with one plain sentence.
    """
    encoding = model.encoder.encode(text, prompt, bos=bos, parse_special=parse_special)
    if limit is not None and limit < 1:
        raise TextError("The number of tokens to score must be at least 1.")
    left_out = max(0, len(encoding) - max(limit, encoding.prefix)) if limit else 0
    encoding = encoding.first(len(encoding) - left_out)
    if max(encoding.ids, default=0) >= model.vocabulary:
        raise ModelError(f"The tokenizer knows more tokens than “{model.name}”: use the tokenizer made for this model.")
    room = (model.context if window is None else min(window, model.context)) - encoding.prefix
    stride = room // 2 if stride is None else stride
    windows = plan_windows(len(encoding) - encoding.prefix, room, stride)
    try:
        statistics = _measure(model, encoding, windows, chunk, progress, stop)
    except (RuntimeError, MemoryError) as error:
        # On the CPU torch reports a failed allocation as a plain RuntimeError.
        if not isinstance(error, torch.OutOfMemoryError | MemoryError) and "allocate memory" not in str(error):
            raise
        raise ModelError(
            f"{len(encoding)} tokens do not fit into the memory of {model.device}: score a shorter text, "
            "or give a smaller window."
        ) from error
    sheet = _sheet(
        model,
        encoding,
        statistics,
        {
            "bos_policy": bos,
            "special_tokens_parsed": parse_special,
            "prompt_characters": min(len(encoding.text), len(mend_surrogates(prompt or "")[0])),
            "prefix_tokens": encoding.prefix,
            "window": encoding.prefix + room,
            "stride": stride,
            "windows": len(windows),
            "tokens_left_out": left_out,
        },
    )
    return _with_weights(sheet, [find(one) if isinstance(one, str) else one for one in objectives], model)


def _with_weights(sheet: Sheet, objectives: Sequence[Objective], model: Model) -> Sheet:
    """The sheet with one more column for each of `objectives`, and their settings in its provenance."""
    if not objectives:
        return sheet
    weights = {f"weight_{one.label}": weigh(sheet, one, model) for one in objectives}
    settings = dict(sheet.provenance["objectives"]) | {f"weight_{one.label}": one.values for one in objectives}
    return replace(sheet, columns={**sheet.columns, **weights}, provenance={**sheet.provenance, "objectives": settings})


def _measure(
    model: Model,
    encoding: Encoding,
    windows: list[Window],
    chunk: int | None,
    progress: Callable[[float], None] | None,
    stop: Callable[[], bool] | None,
) -> Statistics:
    """Statistics of every row that has a prediction."""
    targets = torch.tensor(encoding.ids[max(1, encoding.prefix) :], dtype=torch.long)

    def tick(done: int) -> None:
        if stop and stop():
            raise Cancelled("Scoring was stopped.")
        if progress:
            progress(done / len(targets))

    return stream(
        outputs(model, encoding.ids, encoding.prefix, windows),
        model.head,
        targets,
        model.encoder.vocabulary.digit_ids or (),
        vocabulary=model.vocabulary,
        chunk=chunk,
        tick=tick,
    )


def _sheet(model: Model, encoding: Encoding, statistics: Statistics, method: dict[str, Any]) -> Sheet:
    length = len(encoding)
    predicted = np.arange(length - len(statistics), length)
    vocabulary = model.encoder.vocabulary
    columns: dict[str, Any] = {
        name: np.full(length, np.nan) for name, column in COLUMNS.items() if column.kind in ("int", "float")
    }
    columns |= {
        "position": np.arange(length),
        "id": np.array(encoding.ids, dtype=np.int64),
        "token": [
            shown or str(model.tokenizer.convert_ids_to_tokens(i))
            for i, shown in zip(encoding.ids, encoding.shown(), strict=True)
        ],
        "bytes": [data.hex() for data in encoding.bytes_],
        "start": np.array(encoding.start, dtype=np.int64),
        "end": np.array(encoding.end, dtype=np.int64),
        "is_target": np.array(encoding.is_target, dtype=bool),
    }
    for name, values in _token_columns(statistics).items():
        columns[name][predicted] = values.numpy()
    digits = [(row, place) for row, place in enumerate(encoding.digits) if place is not None]
    for row, place in digits:
        columns["digit"][row], columns["place"][row] = place
    scored = [(row, place) for row, place in digits if row >= predicted.min(initial=length)]
    digit_logits: dict[int, tuple[float, ...]] = {}
    p_digits: dict[int, tuple[float, ...]] = {}
    if scored:
        rows = np.array([row for row, _ in scored])
        logits = statistics.digit_logits[rows - predicted[0]]
        digit_columns, distribution = _digit_columns(logits, torch.tensor([place for _, place in scored]))
        for name, column in digit_columns.items():
            columns[name][rows] = column.numpy()
        digit_logits = dict(zip(rows.tolist(), map(tuple, logits.tolist()), strict=True))
        p_digits = dict(zip(rows.tolist(), map(tuple, distribution.tolist()), strict=True))
    ordered = {name: columns[name] for name in COLUMNS}

    shown: dict[int, str] = {}
    for i in set(statistics.top_ids.flatten().tolist()):
        shown[i] = show_bytes(vocabulary.bytes_of(i)) or f"⟨id {i}⟩"
    blank = length - len(statistics)
    width = statistics.top_ids.shape[1]
    return Sheet(
        text=encoding.text,
        columns=ordered,
        provenance=_provenance(model, encoding, method, int((~np.isnan(columns["log_p"][columns["is_target"]])).sum())),
        special=encoding.is_special,
        cut_characters=encoding.cut_characters(),
        top_tokens=((),) * blank + tuple(tuple(shown[i] for i in row) for row in statistics.top_ids.tolist()),
        top_ids=np.vstack([np.full((blank, width), -1), statistics.top_ids.numpy()]),
        top_log_p=np.vstack([np.full((blank, width), np.nan), statistics.top_log_p.numpy()]),
        digit_logits=digit_logits,
        p_digits=p_digits,
    )


def _token_columns(statistics: Statistics) -> dict[str, torch.Tensor]:
    log_p, entropy = statistics.log_p, statistics.entropy
    rank = torch.where(statistics.rank > 0, statistics.rank.double(), torch.nan)
    deft_focus = deft_alpha(statistics.concentration)
    cayley_focus = cayley_alpha(log_p)
    return {
        "log_p": log_p,
        "p": log_p.exp(),
        "entropy": entropy,
        "rank": rank,
        "expected_rank": statistics.expected_rank,
        "concentration": statistics.concentration,
        "ranktuner_indicator": indicator(rank, statistics.expected_rank),
        "ranktuner_scale": scale(rank, statistics.expected_rank),
        "ranktuner_scale_from_bounds": scale_from_bounds(log_p, entropy, rank),
        "deft_alpha": deft_focus,
        "deft_gate": trust_gate(log_p, deft_focus),
        "cayley_alpha": cayley_focus,
        "cayley_gate": trust_gate(log_p, cayley_focus),
    }


def _digit_columns(
    logits: torch.Tensor, digits_and_places: torch.Tensor
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    digits, places = digits_and_places.unbind(-1)
    one_hot = torch.nn.functional.one_hot(digits, 10).double()
    distribution = p_given_digit(logits)
    columns = {
        "place_weight": place_weight(places.double()),
        "p_given_digit": (distribution * one_hot).sum(-1),
        "digit_entropy": digit_entropy(logits),
        "del_criterion": criterion(logits, one_hot),
        "del_penalty": penalty(logits, one_hot, places.double(), alpha=DEL_ALPHA),
    }
    return columns, distribution


def _provenance(model: Model, encoding: Encoding, method: dict[str, Any], scored: int) -> dict[str, Any]:
    tokenizer = type(model.tokenizer).__name__
    return {
        "losscore": _version("losscore"),
        "model": model.name,
        "revision": model.revision,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "tokenizer": f"{tokenizer}, {len(model.tokenizer)} entries",
        "vocabulary": model.vocabulary,
        "logits": "streamed from hidden states" if model.streams else "taken whole from the model",
        "statistics_dtype": "float64",
        "bos": encoding.bos,
        **method,
        "tokens": len(encoding),
        "tokens_scored": scored,
        "digits_in_text": encoding.digits_in_text,
        "digit_set": len(model.encoder.vocabulary.digit_ids or ()),
        "objectives": {
            "ranktuner": {"base_weight": 1, "expected_rank": "exact"},
            "deft": {"alpha": "concentration"},
            "cayley": {},
            "del": {"alpha": DEL_ALPHA},
        },
        "notes": [*model.notes, *encoding.notes],
        "versions": {name: _version(name) for name in ("torch", "transformers", "tokenizers", "numpy")},
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
