"""An example as the training sees it: its windows, what is predicted in them, and which of that is trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from losscore.errors import TextError
from losscore.fused import Targets
from losscore.running import Plan, plan_reading
from losscore.text import Encoding
from losscore.text.encoding import mend_surrogates
from losscore.text.examples import Example

if TYPE_CHECKING:
    from losscore.models import Model

# Padded ids that are run at one time: bounds the memory of the activations.
ROOM = 2048


@dataclass(frozen=True)
class Stretch:
    """Ids that are run together; the outputs from `first` on predict `targets`."""

    ids: tuple[int, ...]
    first: int
    targets: Targets


@dataclass(frozen=True)
class Passage:
    """One example: how it is read, and its stretches in order, one a window."""

    encoding: Encoding
    plan: Plan
    prompt_characters: int
    stretches: tuple[Stretch, ...]

    @property
    def targets(self) -> Targets:
        """All its targets in order."""
        return Targets.join([stretch.targets for stretch in self.stretches])


def read_passages(
    model: Model, examples: Sequence[Example], bos: str, tick: Callable[[], None] | None = None
) -> list[Passage]:
    """The examples as `model` reads them, but for those without a target. TextError where that leaves none.

    tick() is called before each one and may raise.
    """
    passages = []
    for number, example in enumerate(examples):
        if tick:
            tick()
        passages.append(_passage(model, example, number, bos))
    with_targets = [passage for passage in passages if passage.stretches and passage.targets.count]
    if not with_targets:
        raise TextError("There is nothing to train on: give a text of at least two tokens, or a response.")
    return with_targets


def _passage(model: Model, example: Example, number: int, bos: str) -> Passage:
    encoding = model.encoder.encode(example.response, example.prompt, bos=bos)
    plan = plan_reading(model, encoding)
    front, body = encoding.ids[: plan.prefix], encoding.ids[plan.prefix :]
    stretches = []
    for window in plan.windows:
        read = (*front, *body[window.start : window.stop])
        # The output at t - 1 predicts token t: the first token of all has none without a prefix.
        first = max(plan.prefix + window.first - window.start - 1, 0)
        if len(read) - 1 > first:
            rows = range(window.start + first + 1, window.start + len(read))
            stretches.append(Stretch(read[:-1], first, _targets(encoding, rows, number)))
    return Passage(encoding, plan, len(mend_surrogates(example.prompt)[0]), tuple(stretches))


def _targets(encoding: Encoding, rows: range, number: int) -> Targets:
    digits = [encoding.digits[row] for row in rows]
    return Targets(
        ids=torch.tensor([encoding.ids[row] for row in rows], dtype=torch.long),
        sequence=torch.full((len(rows),), number, dtype=torch.long),
        trained=torch.tensor([encoding.is_target[row] for row in rows], dtype=torch.bool),
        digit=torch.tensor([-1 if digit is None else digit.digit for digit in digits], dtype=torch.long),
        place=torch.tensor([torch.nan if digit is None else digit.place for digit in digits], dtype=torch.float64),
    )


def batches(stretches: Sequence[Stretch], parts: int, room: int) -> list[list[Stretch]]:
    """The stretches in order, in at least `parts` groups (as far as there are stretches) of at most `room` padded ids.

    A stretch longer than `room` stands alone.
    """
    groups: list[list[Stretch]] = []
    for part in range(parts):
        low, high = (len(stretches) * edge // parts for edge in (part, part + 1))
        fresh = True
        for stretch in stretches[low:high]:
            widest = max([len(stretch.ids)] if fresh else [len(stretch.ids), *(len(one.ids) for one in groups[-1])])
            if fresh or widest * (len(groups[-1]) + 1) > room:
                groups.append([])
            groups[-1].append(stretch)
            fresh = False
    return groups


def padded(group: Sequence[Stretch], device: torch.device) -> Tensor:
    """Ids (n, longest). What stands behind a stretch cannot be seen from within it, so its last id fills the row."""
    longest = max(len(stretch.ids) for stretch in group)
    rows = [[*stretch.ids, *[stretch.ids[-1]] * (longest - len(stretch.ids))] for stretch in group]
    return torch.tensor(rows, dtype=torch.long, device=device)
