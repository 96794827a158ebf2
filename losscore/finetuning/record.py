"""The history of a fine-tune: its snapshots as series, curves and JSON, and several runs in one table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from losscore.columns import COLUMNS
from losscore.finetuning.settings import Settings
from losscore.finetuning.snapshot import Snapshot
from losscore.objectives import Objective

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray[Any, np.dtype[np.float64]]
CURVES = ("loss", "nll", "entropy", "p", "digit_entropy", "gradient_norm")
# What a step cannot change stands once, beside the steps.
_FIXED = ("position", "id", "token", "bytes", "start", "end", "is_target", "digit", "place", "place_weight")


class Record:
    """One run. `ended` is empty while it goes on, then says how it ended."""

    def __init__(self, objective: Objective, settings: Settings, provenance: Mapping[str, Any]) -> None:
        self.objective = objective
        self.settings = settings
        self.provenance = dict(provenance)
        self.snapshots: list[Snapshot] = []
        self.ended = ""

    def add(self, snapshot: Snapshot) -> None:
        """The next snapshot."""
        self.snapshots.append(snapshot)

    def series(self, column: str, example: int = 0) -> Array:
        """A column of an example over the steps, (snapshots, tokens), NaN where undefined."""
        sheets = [snapshot.sheet(example) for snapshot in list(self.snapshots)]
        if not sheets:
            return np.zeros((0, 0))
        return np.array([np.asarray(sheet.columns[column], dtype=np.float64) for sheet in sheets])

    def curve(self, name: str) -> list[float | None]:
        """One of `CURVES`, an entry per snapshot. ValueError for another name."""
        if name not in CURVES:
            raise ValueError(f"a curve is one of {', '.join(CURVES)}, not {name!r}")
        return [getattr(snapshot, name) for snapshot in list(self.snapshots)]

    def forgetting(self) -> tuple[float, float] | None:
        """Mean KL(base || tuned) and mean change of NLL over the probes when last looked at, nats a token."""
        for snapshot in reversed(list(self.snapshots)):
            if snapshot.probes:
                return (
                    float(np.mean([probe.kl for probe in snapshot.probes])),
                    float(np.mean([probe.nll_change for probe in snapshot.probes])),
                )
        return None

    @property
    def seconds(self) -> float:
        """The time that all snapshots took together."""
        return sum(snapshot.seconds for snapshot in list(self.snapshots))

    def to_json(self) -> str:
        """Settings, and every snapshot with its columns; strict: null where undefined, no NaN, no Infinity."""
        snapshots = list(self.snapshots)
        first = snapshots[0] if snapshots else None
        sheets = [first.sheet(example) for example in range(first.examples)] if first else []
        table = {
            "provenance": {**self.provenance, "ended": self.ended},
            "sheet_provenance": dict(sheets[0].provenance) if sheets else {},
            "texts": [sheet.text for sheet in sheets],
            "tokens": [{name: _plain(name, sheet.columns[name]) for name in _FIXED} for sheet in sheets],
            "snapshots": [_snapshot(snapshot) for snapshot in snapshots],
        }
        return json.dumps(table, ensure_ascii=False, allow_nan=False)


def race_table(records: Sequence[Record]) -> pd.DataFrame:
    """Runs from one start side by side; the first row is the start itself.

    p, nll, entropy and digit_entropy are means over the targets as in `Snapshot`; kl_elsewhere and nll_change_elsewhere
    are those of `Record.forgetting`; seconds are of the whole run.
    """
    import pandas as pd

    rows = []
    begun = [record for record in records if record.snapshots]
    if begun:
        rows.append(_row("before", begun[0].snapshots[0], (0.0, 0.0) if begun[0].forgetting() else None, None))
    rows += [
        _row(record.objective.heading, record.snapshots[-1], record.forgetting(), record.seconds) for record in begun
    ]
    return pd.DataFrame(rows)


def _row(
    title: str, snapshot: Snapshot, forgetting: tuple[float, float] | None, seconds: float | None
) -> dict[str, Any]:
    kl, change = forgetting or (None, None)
    return {
        "objective": title,
        "steps": snapshot.step,
        "p": snapshot.p,
        "nll": snapshot.nll,
        "entropy": snapshot.entropy,
        "digit_entropy": snapshot.digit_entropy,
        "kl_elsewhere": kl,
        "nll_change_elsewhere": change,
        "seconds": seconds,
    }


def _snapshot(snapshot: Snapshot) -> dict[str, Any]:
    figures = {name: _finite(getattr(snapshot, name)) for name in CURVES}
    changing = [name for name in COLUMNS if name not in _FIXED]
    sheets = [snapshot.sheet(example) for example in range(snapshot.examples)]
    return {
        "step": snapshot.step,
        **figures,
        "seconds": snapshot.seconds,
        "probes": [
            {name: _finite(value) if isinstance(value, float) else value for name, value in asdict(probe).items()}
            for probe in snapshot.probes
        ],
        "examples": [{name: _plain(name, sheet.columns[name]) for name in changing} for sheet in sheets],
    }


def _plain(name: str, values: Any) -> list[Any]:
    kind = COLUMNS[name].kind
    if kind in ("text", "bool"):
        return [str(value) if kind == "text" else bool(value) for value in values]
    number = int if kind == "int" else float
    return [number(value) if math.isfinite(value) else None for value in np.asarray(values, dtype=np.float64).tolist()]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
