"""Does the device give the CPU's values: scores, every objective's loss and gradient, a fine-tune's curve?"""

from __future__ import annotations

import numpy as np
import torch

import losscore
from losscore.finetuning import FineTune, Settings
from losscore.fused import Targets, fused, tokens_of
from losscore.models import Model
from losscore.objectives import CATALOGUE, Objective
from losscore.stats import measure
from tests.gpu.report import Report
from tests.gpu.subject import TEXT

# float32 keeps some 7 digits; through 30 layers and logits up to some 30 that leaves 4 or so behind the point of a
# log-probability. A product in TF32 (3 digits) does not pass.
_LOG_P = 2e-3
_TOKENS, _WIDTH, _VOCABULARY = 96, 64, 5_000


def check_scores(report: Report, cpu: Model, device: Model) -> None:
    """log p, entropy, rank and E[R] of a text."""
    here, there = (losscore.score(model, TEXT).columns for model in (cpu, device))
    for name in ("log_p", "entropy"):
        report.check(f"score, {name}, nats", _largest(here[name] - there[name]), _LOG_P)
    for name in ("rank", "expected_rank"):
        # A rank moves by one where two tokens are as good as equal, and by more far down, where they stand close.
        moved = np.abs(here[name] - there[name]) / np.maximum(1.0, 0.01 * here[name])
        report.check(f"score, {name}, in ranks or percent of it", _largest(moved), 1.0)


def check_objectives(report: Report, device: torch.device) -> None:
    """Loss and gradient of each objective from float32 rows on the device, against autograd in float64 on the CPU."""
    draw = torch.Generator().manual_seed(3)
    rows = torch.randn(_TOKENS, _WIDTH, generator=draw, dtype=torch.float64)
    head = torch.randn(_VOCABULARY, _WIDTH, generator=draw, dtype=torch.float64) / 4
    ids = torch.randint(0, _VOCABULARY, (_TOKENS,), generator=draw)
    # Half of the targets are among the ten likeliest, so that gates are open too; a quarter are digits.
    ids[::2] = (rows @ head.T).topk(10).indices[::2, 4]
    digits = list(range(100, 110))
    is_digit = torch.arange(_TOKENS) % 4 == 1
    digit = torch.where(is_digit, torch.arange(_TOKENS) % 10, -1)
    ids = torch.where(is_digit, 100 + digit, ids)
    place = torch.where(is_digit, torch.arange(_TOKENS) % 5 - 2.0, torch.nan).double()
    targets = Targets(ids, torch.zeros_like(ids), torch.ones_like(is_digit), digit, place)
    for name, objective in CATALOGUE.items():
        loss, gradient = _by_autograd(objective, rows, head, targets, digits)
        weight = head.float().to(device)
        settled = _settled(objective, rows, head, targets, digits)
        done = fused(
            settled,
            rows.float().to(device),
            lambda piece, weight=weight: piece @ weight.T,
            targets,
            vocabulary=len(head),
            digit_ids=digits,
            count=targets.count,
            digit_count=targets.digit_count,
            embedding=weight,
        )
        assert done.gradient is not None
        off = (done.gradient.cpu().double() - gradient).norm() / gradient.norm()
        report.check(f"objective {name}, loss", abs(done.loss - loss) / max(abs(loss), 1e-3), 5e-5)
        report.check(f"objective {name}, gradient", float(off), 2e-4)


def _by_autograd(
    objective: Objective, rows: torch.Tensor, head: torch.Tensor, targets: Targets, digits: list[int]
) -> tuple[float, torch.Tensor]:
    live = rows.clone().requires_grad_()
    loss = objective(
        (live @ head.T)[None],
        targets.ids[None],
        shift=False,
        digit_ids=digits,
        places=targets.place[None],
        embedding=head,
    )
    (gradient,) = torch.autograd.grad(loss, live)
    return float(loss.detach()), gradient


def _settled(
    objective: Objective, rows: torch.Tensor, head: torch.Tensor, targets: Targets, digits: list[int]
) -> Objective:
    if not objective.needs_batch:
        return objective
    return objective.settled(tokens_of(measure(rows @ head.T, targets.ids, digits), targets, len(head)))


def check_curve(report: Report, cpu: Model, device: Model, steps: int) -> None:
    """The NLL of a LoRA fine-tune, step by step."""
    curves = []
    for model in (cpu, device):
        with FineTune(model, TEXT, objective="nll", settings=Settings(steps=steps)) as run:
            curves.append(np.array([snapshot.nll for snapshot in run]))
    here, there = curves
    report.figure("LoRA, NLL", before=float(there[0]), after=float(there[-1]))
    report.check("LoRA, NLL at step 0, nats", float(abs(here[0] - there[0])), _LOG_P)
    # Adam divides by the gradient's own size, so rounding is not damped: the curves part slowly.
    report.check(f"LoRA, NLL over {steps} steps, nats", _largest(here - there), 0.05)
    report.check("LoRA, NLL after / before", float(there[-1] / there[0]), 0.99)


def _largest(difference: np.ndarray) -> float:  # type: ignore[type-arg]
    known = np.isfinite(difference)
    return float(np.abs(difference[known]).max()) if known.any() else float("nan")
