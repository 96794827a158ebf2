"""How hard an objective pushes on each token of a sheet. Runs no model, but for those of the whole distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from losscore.errors import LosscoreError
from losscore.objectives import Objective, Tokens, gradient_norm, norms_from_logits
from losscore.objectives import weight as relative_weight
from losscore.objectives.tokens import entropy_of_top
from losscore.running import outputs
from losscore.sheet import Sheet
from losscore.text import plan_windows

if TYPE_CHECKING:
    from losscore.models import Model

Array = np.ndarray[Any, np.dtype[np.float64]]
_ROWS = 32


def target_rows(sheet: Sheet) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The rows of `sheet` that are trained on and have a finite log-probability."""
    target = np.asarray(sheet.columns["is_target"], dtype=bool)
    return np.flatnonzero(target & np.isfinite(np.asarray(sheet.columns["log_p"], dtype=np.float64)))


def tokens_of(sheet: Sheet) -> Tokens:
    """The targets of `sheet` as an objective sees them; a text is one sequence."""
    rows = target_rows(sheet)
    column = {name: torch.from_numpy(np.asarray(values)[rows]) for name, values in _statistics(sheet).items()}
    tokens = Tokens(
        log_p=column["log_p"],
        entropy=column["entropy"],
        rank=column["rank"],
        expected_rank=column["expected_rank"],
        concentration=column["concentration"],
        top_entropy=column["top_entropy"],
        vocabulary=int(sheet.provenance["vocabulary"]),
        sequence=torch.zeros(len(rows), dtype=torch.long),
    )
    digits = [(at, row) for at, row in enumerate(rows.tolist()) if row in sheet.digit_logits]
    logits = torch.tensor([sheet.digit_logits[row] for _, row in digits], dtype=torch.float64).reshape(-1, 10)
    return tokens.with_digits(
        logits,
        [int(sheet.columns["digit"][row]) for _, row in digits],
        [float(sheet.columns["place"][row]) for _, row in digits],
        [at for at, _ in digits],
    )


def weigh(sheet: Sheet, objective: Objective, model: Model | None = None) -> Array:
    """One weight per row of `sheet`: sum_v |dL/dz_v| relative to cross-entropy's, equal to the gate where there is one.

    NaN where a row is no target, or where p is 1 to rounding and nothing pushes. See `gradient` for `model`.
    """
    weights = np.full(len(sheet), np.nan)
    rows = target_rows(sheet)
    norms = torch.from_numpy(gradient(sheet, objective, model)[rows])
    weights[rows] = relative_weight(norms, tokens_of(sheet)).numpy()
    return weights


def gradient(sheet: Sheet, objective: Objective, model: Model | None = None) -> Array:
    """sum_v |dL_t/dz_v| for each row of `sheet`, the loss being the sum over the targets; NaN where a row is no target.

    model: the model that scored the sheet; only objectives of the whole distribution run it again. Raises LosscoreError
    without one, and for such an objective as part of a combination.
    """
    norms = np.full(len(sheet), np.nan)
    rows = target_rows(sheet)
    if not len(rows):
        return norms
    tokens = tokens_of(sheet)
    if not objective.needs_distribution:
        norms[rows] = gradient_norm(objective, tokens).numpy()
        return norms
    if len(objective.terms) > 1:
        raise LosscoreError(f"{objective.title} mixes an objective of the whole distribution with others: pick one.")
    if model is None:
        raise LosscoreError(f"{objective.title} looks at the whole distribution: give the model that scored the text.")
    norms[rows] = _norms_with(model, sheet, objective, rows, tokens)
    return norms


def weights_table(
    sheet: Sheet,
    objectives: Sequence[Objective],
    model: Model | None = None,
    progress: Callable[[float], None] | None = None,
) -> dict[str, Array]:
    """`weigh` for several objectives, by their labels: one objective with two settings stands in it twice."""
    table: dict[str, Array] = {}
    for done, objective in enumerate(objectives, 1):
        table[objective.label] = weigh(sheet, objective, model)
        if progress:
            progress(done / len(objectives))
    return table


def _statistics(sheet: Sheet) -> dict[str, Array]:
    names = ("log_p", "entropy", "rank", "expected_rank", "concentration")
    columns = {name: np.asarray(sheet.columns[name], dtype=np.float64) for name in names}
    if sheet.top_log_p is None:
        raise LosscoreError("This sheet doesn't hold the most probable tokens: score the text again.")
    return columns | {"top_entropy": entropy_of_top(torch.from_numpy(sheet.top_log_p)).numpy()}


def _norms_with(
    model: Model, sheet: Sheet, objective: Objective, rows: np.ndarray[Any, np.dtype[np.int64]], tokens: Tokens
) -> Array:
    ids = [int(i) for i in sheet.columns["id"]]
    prefix = int(sheet.provenance["prefix_tokens"])
    size, stride = int(sheet.provenance["window"]) - prefix, int(sheet.provenance["stride"])
    windows = plan_windows(len(ids) - prefix, size, stride)
    embedding = model.network.get_output_embeddings().weight.detach()
    place = {int(row): at for at, row in enumerate(rows)}
    norms = np.zeros(len(rows))
    row = max(1, prefix)
    for block in outputs(model, ids, prefix, windows):
        for start in range(0, len(block), _ROWS):
            piece = block[start : start + _ROWS]
            wanted = [(offset, place[row + offset]) for offset in range(len(piece)) if row + offset in place]
            row += len(piece)
            if not wanted:
                continue
            with torch.no_grad():
                logits = model.head(piece[[offset for offset, _ in wanted]])
            at = [index for _, index in wanted]
            target = torch.tensor([ids[rows[index]] for index in at], device=logits.device)
            part = tokens.rows(at).to(logits.device, torch.float32)
            norms[at] = norms_from_logits(objective, logits, target, part, embedding).double().cpu().numpy()
    return norms
