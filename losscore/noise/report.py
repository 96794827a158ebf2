"""What the noise check found, and what RankTuner's authors found with theirs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pandas as pd


class PaperRow(NamedTuple):
    """One row of the paper's table: shares of 1."""

    method: str
    precision: float
    recall: float
    sequences_hit: float


# Table 1 of arXiv 2602.01745, "noise sensitivity" at the top 10 % of the weights, as a public summary of the paper
# (papernotes.org, ICML 2026) gives it; the paper itself was not at hand.
PAPER = (
    PaperRow("entropy-dominant", 0.0454, 0.5533, 0.77),
    PaperRow("probability-dominant", 0.0325, 0.3965, 0.77),
    PaperRow("RankTuner", 0.0216, 0.2639, 0.09),
)
PAPER_SOURCE = (
    "arXiv 2602.01745, Table 1 (top 10 %), as summarised on papernotes.org. The summary names neither the model, the "
    "data and the kind of noise of this table nor how a hit is counted; precision x 0.1 / recall gives 0.82 % of noise "
    "tokens in all three rows. So compare the order of the rows, not the figures."
)


@dataclass(frozen=True)
class NoiseRow:
    """What one objective makes of the noise; shares of 1, None where nothing could be counted.

    precision: share of noise among the top tokens. recall: share of the noise tokens that lie among the top tokens.
    sequences_hit: share of the answers with noise of which a noise token lies among the top tokens. All three are
    expected values where equal weights straddle the border. tokens: how many had a weight.
    """

    objective: str
    title: str
    kind: str
    tokens: int
    precision: float | None
    recall: float | None
    sequences_hit: float | None


@dataclass(frozen=True)
class NoiseReport:
    """A row per objective. `tokens` and `noise_tokens` count the predicted tokens of all answers together."""

    rows: tuple[NoiseRow, ...]
    tokens: int
    noise_tokens: int
    provenance: Mapping[str, Any]

    @property
    def base_rate(self) -> float:
        """Share of noise among the tokens: the precision of an objective that weighs all of them alike."""
        return self.noise_tokens / self.tokens

    def to_frame(self) -> pd.DataFrame:
        """A pandas table, one row per objective; `frame.attrs` holds the provenance."""
        import pandas as pd

        frame = pd.DataFrame([asdict(row) for row in self.rows])
        measured = ["precision", "recall", "sequences_hit"]
        frame[measured] = frame[measured].astype("float64")
        frame.insert(3, "base_rate", self.base_rate)
        frame.attrs["provenance"] = dict(self.provenance)
        return frame

    def to_json(self) -> str:
        """An object of provenance, tokens, noise_tokens, base_rate, objectives (the rows) and paper (source and rows);
        strict: no NaN, no Infinity."""
        table = {
            "provenance": dict(self.provenance),
            "tokens": self.tokens,
            "noise_tokens": self.noise_tokens,
            "base_rate": self.base_rate,
            "objectives": [asdict(row) for row in self.rows],
            "paper": {"source": PAPER_SOURCE, "rows": [row._asdict() for row in PAPER]},
        }
        return json.dumps(table, ensure_ascii=False, allow_nan=False, indent=1)

    def to_csv(self) -> str:
        """One cell with the provenance (`# losscore {...}`), then the table, as a sheet's CSV; null is blank."""
        import csv
        import io

        out = io.StringIO(newline="")
        writer = csv.writer(out)
        writer.writerow(["# losscore " + json.dumps(dict(self.provenance), ensure_ascii=False, allow_nan=False)])
        frame = self.to_frame()
        writer.writerow(frame.columns)
        writer.writerows([None if cell != cell else cell for cell in row] for row in frame.itertuples(index=False))
        return out.getvalue()
