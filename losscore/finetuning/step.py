"""One pass over examples: the objective on their targets, its gradient on the weights, and all their statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from losscore.finetuning.passage import ROOM, Passage, Stretch, batches
from losscore.finetuning.trainee import Trainee, run_group
from losscore.fused import Fused, Targets, chunk_rows, fused, tokens_of
from losscore.objectives import Objective
from losscore.stats import Statistics, stream


@dataclass(frozen=True)
class Pass:
    """loss: mean over the targets. statistics, targets: of all predicted tokens of the examples, in order."""

    loss: float
    statistics: Statistics
    targets: Targets


def run_pass(
    objective: Objective,
    trainee: Trainee,
    passages: Sequence[Passage],
    *,
    vocabulary: int,
    digit_ids: Sequence[int],
    parts: int = 1,
    learn: bool = True,
    tick: Callable[[], None] | None = None,
) -> Pass:
    """Run the examples in at least `parts` groups; with `learn` the gradients are added to the weights' `.grad`.

    Whatever the groups, the loss is the mean over the true number of targets (and of digits) of all of them, and what
    an objective reads off its batch it reads off all of them. tick() is called before each group and may raise.
    """
    groups = batches([stretch for passage in passages for stretch in passage.stretches], parts, ROOM)
    targets = Targets.join([passage.targets for passage in passages])
    kept: list[Tensor] = []
    at_once = len(groups) == 1 and len(targets) <= chunk_rows(len(targets), vocabulary)
    if objective.needs_batch and not at_once:
        objective, kept = _settled(objective, trainee, groups, targets, vocabulary, learn, tick)
    embedding = trainee.embedding if objective.needs_distribution else None
    count, digit_count = targets.count, targets.digit_count
    loss = 0.0
    measured: list[Statistics] = []
    for index, group in enumerate(groups):
        if tick:
            tick()
        rows = kept[index] if kept else _rows(trainee, group)
        done: Fused = fused(
            objective,
            rows,
            trainee.head,
            Targets.join([stretch.targets for stretch in group]),
            vocabulary=vocabulary,
            digit_ids=digit_ids,
            count=count,
            digit_count=digit_count,
            embedding=embedding,
            weight=trainee.weight,
            backward=learn,
        )
        if learn and done.gradient is not None and rows.requires_grad:
            torch.autograd.backward(rows, done.gradient)
        loss += done.loss
        measured.append(done.statistics)
    return Pass(loss, Statistics.join(measured), targets)


def _rows(trainee: Trainee, group: Sequence[Stretch]) -> Tensor:
    """The rows that predict the group's targets, one after the other, with gradient.

    Also where nothing will be learned: the kernels are then the same, and so are the values to the last bit.
    """
    with torch.enable_grad():
        return torch.cat(run_group(trainee, group))


def _settled(
    objective: Objective,
    trainee: Trainee,
    groups: Sequence[Sequence[Stretch]],
    targets: Targets,
    vocabulary: int,
    learn: bool,
    tick: Callable[[], None] | None,
) -> tuple[Objective, list[Tensor]]:
    """The objective with what it reads off the whole batch, and the rows where there is one group: they serve again."""
    kept: list[Tensor] = []

    def rows() -> Iterator[Tensor]:
        for group in groups:
            if tick:
                tick()
            found = _rows(trainee, group)
            if len(groups) == 1:
                kept.append(found)
            yield found.detach()

    statistics = stream(rows(), trainee.head, targets.ids, vocabulary=vocabulary)
    return objective.settled(tokens_of(statistics, targets, vocabulary)), kept
