"""The one list of objectives that every contract test runs over, each with its weight written out once more by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from losscore import objectives
from losscore.objectives import CATALOGUE, Objective, Tokens, from_formula
from losscore.objectives.tokens import Distribution
from losscore.stats import measure

VOCABULARY = 30
DIGIT_IDS = [5, 12, 9, 6, 13, 10, 7, 14, 11, 8]
BLANK = math.nan

FAMILY: dict[str, Objective] = CATALOGUE | {
    "tsallis_a0": objectives.tsallis.with_parameters(a=0),
    "tsallis_a1e-9": objectives.tsallis.with_parameters(a=1e-9),
    "tsallis_a2": objectives.tsallis.with_parameters(a=2),
    "cayley_without_root": objectives.cayley.with_parameters(square_root=False),
    "eaft_squared": objectives.eaft.with_parameters(power=2),
    "eaft_3.0": objectives.eaft.with_parameters(divisor="3.0"),
    "ranktuner_base_p": objectives.ranktuner.with_parameters(base="p"),
    "ranktuner_bounds": objectives.ranktuner.with_parameters(estimate="bounds"),
    "ranktuner_bounds_fixed": objectives.ranktuner.with_parameters(estimate="bounds", exponent=0.4),
    "ranktuner_fixed": objectives.ranktuner.with_parameters(exponent=0.5),
    "talr_tau2": objectives.talr.with_parameters(tau=2),
    "overtone_mild": objectives.overtone.with_parameters(lam=0.3, n=2),
    "ntl_was_outside": objectives.ntl_was.with_parameters(outside=True),
    "formula": from_formula("p**0.3 * (1 - entropy/log(V)) + (rank > 3) / expected_rank"),
    "sum": objectives.nll + 0.3 * objectives.ntl_was,
    "twice": 2 * objectives.deft,
    "mixture": objectives.overtone + 0.5 * objectives.dist2loss,
}
OF_THE_BATCH = {"talr"}
WHOLE = {name for name, objective in FAMILY.items() if objective.needs_distribution}
DIGITS = {name for name, objective in FAMILY.items() if objective.needs_digits}


def _f(x: float) -> float:
    return 1 / math.log2(x + 1)


def _bits_bound(entropy: float) -> float:
    return 2 ** (entropy / math.log(2)) / 4 + 1


def _cayley(p: float) -> float:
    return (1 - math.sqrt(1 - p)) / (1 + math.sqrt(1 - p))


# -dL/d log p of one token, from its statistics `s`, in plain floats. `s["tau"]`: TALR's temperature of the batch.
GATES: dict[str, Callable[[dict[str, float]], float]] = {
    "nll": lambda s: 1.0,
    "linear": lambda s: s["p"],
    "dft": lambda s: s["p"],
    "mixce": lambda s: 0.5 + 0.5 * s["p"],
    "talr": lambda s: max(s["p"] ** (1 / s["tau"]), 0.01),
    "talr_tau2": lambda s: max(s["p"] ** 0.5, 0.01),
    "tsallis": lambda s: s["p"] ** 0.5,
    "tsallis_a0": lambda s: 1.0,
    "tsallis_a1e-9": lambda s: s["p"] ** 1e-9,
    "tsallis_a2": lambda s: s["p"] ** 2,
    "eaft": lambda s: s["top_entropy"] / math.log(20),
    "eaft_squared": lambda s: (s["top_entropy"] / math.log(20)) ** 2,
    "eaft_3.0": lambda s: s["top_entropy"] / 3.0,
    "deft": lambda s: s["p"] ** s["concentration"],
    "twice": lambda s: 2 * s["p"] ** s["concentration"],
    "cayley": lambda s: s["p"] ** _cayley(s["p"]),
    "cayley_without_root": lambda s: s["p"] ** ((1 - (1 - s["p"])) / (1 + (1 - s["p"]))),
    "ranktuner": lambda s: 2 ** (_f(s["expected_rank"]) - _f(s["rank"])),
    "ranktuner_base_p": lambda s: s["p"] * 2 ** (_f(s["expected_rank"]) - _f(s["rank"])),
    "ranktuner_fixed": lambda s: (s["rank"] / s["expected_rank"]) ** 0.5,
    "ranktuner_bounds": lambda s: (
        (s["p"] * _bits_bound(s["entropy"])) ** -(_f(max(s["rank"], _bits_bound(s["entropy"]))) ** 2)
    ),
    "ranktuner_bounds_fixed": lambda s: (s["p"] * _bits_bound(s["entropy"])) ** -0.4,
    "formula": lambda s: (
        s["p"] ** 0.3 * (1 - s["entropy"] / math.log(VOCABULARY)) + (s["rank"] > 3) / s["expected_rank"]
    ),
    "del_loss": lambda s: 1.0,
    "sum": lambda s: 1.0,
    "del_penalty": lambda s: 0.0,
    "dist2loss": lambda s: 0.0,
    "ntl_was": lambda s: 0.0,
    "ntl_mse": lambda s: 0.0,
    "ntl_was_outside": lambda s: s["share"] * s["mass"] * (1.01 * 9 - s["distance"]) if s["share"] else 0.0,
}


@dataclass(frozen=True)
class Batch:
    """What a drop-in loss is called with."""

    logits: Tensor
    labels: Tensor
    places: Tensor
    embedding: Tensor
    digit_ids: tuple[int, ...] = tuple(DIGIT_IDS)

    def loss(self, objective: Objective, **options: Any) -> Tensor:
        return objective(
            self.logits,
            self.labels,
            digit_ids=self.digit_ids,
            places=self.places,
            embedding=self.embedding,
            **options,
        )

    def value_and_gradient(self, objective: Objective, **options: Any) -> tuple[Tensor, Tensor]:
        logits = self.logits.detach().requires_grad_()
        value = replace(self, logits=logits).loss(objective, **options)
        (gradient,) = torch.autograd.grad(value.sum(), logits)
        return value.detach(), gradient

    def only(self, rows: slice) -> Batch:
        return replace(self, logits=self.logits[rows], labels=self.labels[rows], places=self.places[rows])

    @property
    def targets(self) -> int:
        return int((self.labels[:, 1:] != -100).sum())

    @property
    def digits(self) -> int:
        return int((~self.places[:, 1:].isnan()).sum())


def batch(seed: int = 0, *, texts: int = 3, time: int = 7, dtype: torch.dtype = torch.float64) -> Batch:
    """Texts of random tokens with gaps in the labels and a few digits among them; some logits tie."""
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(texts, time, VOCABULARY, generator=random, dtype=torch.float64) * 3
    logits = (logits * 4).round() / 4
    labels = torch.randint(15, VOCABULARY, (texts, time), generator=random)
    places = torch.full((texts, time), BLANK, dtype=torch.float64)
    for text in range(texts):
        for at, (digit, place) in zip((2, 4 + text % 2), ((3, 1.0), (8, -1.0)), strict=True):
            labels[text, at], places[text, at] = DIGIT_IDS[(digit + text) % 10], place
    labels[0, 1] = labels[1, 3] = -100
    labels[-1, -1] = -100
    embedding = torch.randn(VOCABULARY, 4, generator=random, dtype=torch.float64)
    return Batch(logits.to(dtype), labels, places, embedding)


def tokens_of(
    logits: Tensor, target: Tensor, *, sequence: Tensor | None = None, places: Tensor | None = None
) -> Tokens:
    """The tokens of rows of logits, their statistics constant and their log_p a leaf."""
    tokens = Tokens.of(measure(logits, target), logits.shape[-1], sequence=sequence)
    if places is None:
        return tokens
    rows = (~places.isnan()).nonzero().squeeze(-1)
    digits = [DIGIT_IDS.index(int(target[row])) for row in rows]
    return tokens.with_digits(logits[rows][:, DIGIT_IDS], digits, places[rows], rows)


def flat(one: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits, target, places and text of every target of a batch, by the shift written out."""
    picked = [
        (text, t)
        for text in range(len(one.labels))
        for t in range(1, one.labels.shape[1])
        if int(one.labels[text, t]) != -100
    ]
    logits = torch.stack([one.logits[text, t - 1] for text, t in picked])
    target = torch.stack([one.labels[text, t] for text, t in picked])
    places = torch.stack([one.places[text, t] for text, t in picked])
    return logits, target, places, torch.tensor([text for text, _ in picked])


def statistics_by_hand(logits: Tensor, target: Tensor, sequence: Tensor) -> list[dict[str, float]]:
    """Every name of `GATES`, in plain floats; `share`, T / N, is 0 at what is no digit."""
    rows = []
    digits = sum(y in DIGIT_IDS for y in target.tolist())
    for z, y in zip(logits.double().tolist(), target.tolist(), strict=True):
        total = math.fsum(math.exp(v) for v in z)
        shares = sorted((math.exp(v) / total for v in z), reverse=True)
        top = [share / math.fsum(shares[:20]) for share in shares[:20]]
        ten = [math.exp(z[i]) / total for i in DIGIT_IDS]
        digit = DIGIT_IDS.index(y) if y in DIGIT_IDS else 0
        rows.append(
            {
                "mass": math.fsum(ten),
                "distance": math.fsum(q * abs(d - digit) for d, q in enumerate(ten)) / math.fsum(ten),
                "share": len(target) / digits if y in DIGIT_IDS else 0.0,
                "p": math.exp(z[y]) / total,
                "entropy": -math.fsum(share * math.log(share) for share in shares),
                "rank": float(sum(v >= z[y] for v in z)),
                "expected_rank": math.fsum(i * share for i, share in enumerate(shares, 1)),
                "concentration": math.fsum(share**2 for share in shares),
                "top_entropy": -math.fsum(share * math.log(share) for share in top),
            }
        )
    by_text: dict[int, list[float]] = {}
    for row, text in zip(rows, sequence.tolist(), strict=True):
        by_text.setdefault(text, []).append(-math.log(row["p"]))
    means = sorted(sum(values) / len(values) for values in by_text.values())
    middle = means[(len(means) - 1) // 2], means[len(means) // 2]
    return [row | {"tau": sum(middle) / 2} for row in rows]


def with_logits(tokens: Tokens, logits: Tensor, target: Tensor, embedding: Tensor) -> Tokens:
    """`tokens` with everything live hanging on `logits`, the statistics as they were."""
    log_probs = torch.log_softmax(logits, -1)
    unit = embedding / embedding.norm(dim=-1, keepdim=True)
    live = replace(
        tokens,
        log_p=log_probs.gather(-1, target[:, None]).squeeze(-1),
        distribution=Distribution(log_probs, target, unit),
    )
    if tokens.digits is None:
        return live
    return replace(live, digits=replace(tokens.digits, logits=logits[tokens.digits.rows][:, DIGIT_IDS]))


def frozen(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """`function` with whatever it detaches kept as it was at the first call: what a constant weight means."""
    kept: list[Tensor] = []
    detach = torch.Tensor.detach

    @contextmanager
    def replaying() -> Iterator[None]:
        calls = iter(range(1_000))

        def replay(self: Tensor) -> Tensor:
            call = next(calls)
            if call == len(kept):
                kept.append(detach(self).clone())
            return kept[call]

        with patch.object(torch.Tensor, "detach", replay):
            yield

    def run(z: Tensor) -> Tensor:
        with replaying():
            return function(z)

    return run
