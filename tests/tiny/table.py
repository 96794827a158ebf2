"""A sheet written by hand: every value in it is known."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from losscore.columns import COLUMNS
from losscore.sheet import Sheet


def sheet_of(tokens: Sequence[str], **columns: Sequence[float | None]) -> Sheet:
    """One row per token; a column left out is undefined, and so is a None in it.

    The first row has no prediction and every other one is a target, unless `is_target` says otherwise.
    """
    size = len(tokens)
    ends = np.cumsum([len(token) for token in tokens])
    filled: dict[str, Any] = {name: np.full(size, math.nan) for name in COLUMNS}
    filled |= {
        "position": np.arange(size),
        "id": np.arange(100, 100 + size),
        "token": list(tokens),
        "bytes": [token.encode().hex() for token in tokens],
        "start": np.array([0, *ends][:size]),
        "end": ends,
        "is_target": np.arange(size) > 0,
    }
    for name, values in columns.items():
        numbers = [math.nan if value is None else value for value in values]
        filled[name] = np.array(numbers, dtype=bool if name == "is_target" else None)
    return Sheet(text="".join(tokens), columns=filled, provenance=PROVENANCE, special=(False,) * size)


PROVENANCE: Mapping[str, Any] = {
    "losscore": "0.1.0",
    "model": 'a "quoted" model, with </script><img src=x onerror=alert(1)> & a comma\\',
    "vocabulary": 1000,
    "bos": "none, the tokenizer's own setting",
    "window": 64,
    "digits_in_text": 3,
    "objectives": {"del": {"alpha": 0.01}},
    "notes": ["한국어 ½", 'say "hi"\nplease'],
}
