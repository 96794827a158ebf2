"""Statistics of a text -> its sheet: every column, the names of the top tokens, how it was made."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from losscore.columns import COLUMNS
from losscore.objectives.cayley import alpha as cayley_alpha
from losscore.objectives.deft import alpha as deft_alpha
from losscore.objectives.deft import gate as trust_gate
from losscore.objectives.digit_entropy import criterion, digit_entropy, p_given_digit, penalty, place_weight
from losscore.objectives.ranktuner import indicator, scale, scale_from_bounds
from losscore.sheet import Sheet
from losscore.stats import Statistics, arithmetic
from losscore.text import Encoding
from losscore.text.display import show_bytes

if TYPE_CHECKING:
    from losscore.models import Model

DEL_ALPHA = 0.01


def assemble(model: Model, encoding: Encoding, statistics: Statistics, method: Mapping[str, Any]) -> Sheet:
    """The sheet of `encoding`, its last rows being those of `statistics`; `method` enters its provenance."""
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


def _provenance(model: Model, encoding: Encoding, method: Mapping[str, Any], scored: int) -> dict[str, Any]:
    return {
        "losscore": _version("losscore"),
        "model": model.name,
        "revision": model.revision,
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": str(model.device),
        "tokenizer": _tokenizer(model),
        "vocabulary": model.vocabulary,
        "logits": "streamed from hidden states" if model.streams else "taken whole from the model",
        # A head's logits are raised to float32 at least.
        "statistics_dtype": arithmetic(model.device, torch.promote_types(model.dtype, torch.float32), model.vocabulary),
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


def _tokenizer(model: Model) -> str:
    """Class, fast or slow, size, and whose it is where it is not the model's own."""
    tokenizer = model.tokenizer
    words = [
        type(tokenizer).__name__,
        "fast" if getattr(tokenizer, "is_fast", False) else "slow",
        f"{len(tokenizer)} entries",
    ]
    return ", ".join(words + ([f"of {model.tokenizer_from}"] if model.tokenizer_from else []))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
