"""Other libraries on the same texts, where they are installed: `python -m tests.bench.peers DUEL ours|theirs` tells one
side's peak memory.

Both sides of a duel are held to the same values before any time is taken.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version

import torch
from torch import Tensor

import losscore
from losscore import objectives
from losscore.finetuning import Settings
from losscore.finetuning.copies import training_copy
from losscore.finetuning.passage import read_passages
from losscore.finetuning.trainee import Trainee
from losscore.fused import fused
from losscore.models import Model
from losscore.stats import measure
from losscore.text.examples import Example
from tests.bench.clock import Work, shares
from tests.bench.memory import added, peak
from tests.bench.statistics import body_of, forward
from tests.bench.step import text_of
from tests.bench.table import NotMeasured, Row

TOKENS = 512


@dataclass(frozen=True)
class Duel:
    """Two works whose `values` (tensors, each side's own) must agree within `tolerance`."""

    ours: Work
    theirs: Work
    values: Callable[[], list[tuple[Tensor, Tensor]]]
    tolerance: float = 1e-4

    def check(self) -> None:
        """ValueError where the two compute different things: no time would be worth comparing."""
        for mine, other in self.values():
            difference = (mine.double() - other.double()).abs().max().item()
            if not difference <= self.tolerance * max(1.0, other.abs().max().item()):
                raise ValueError(f"ours and theirs differ by {difference:g}")


def minicons(model: Model, tokens: int) -> Duel:
    """A text to a table of tokens; theirs surprisal and rank, ours every column of a sheet."""
    from minicons import scorer  # type: ignore[import-not-found]

    text = text_of(model, tokens)
    # It sets the tokenizer's padding.
    reader = scorer.IncrementalLMScorer(model.network, device="cpu", tokenizer=copy.deepcopy(model.tokenizer))

    def ours() -> losscore.Sheet:
        return losscore.score(model, text, bos="never")

    def theirs() -> list[tuple[str, float, int]]:
        found: list[tuple[str, float, int]] = reader.token_score(text, surprisal=True, rank=True)[0]
        return found

    def values() -> list[tuple[Tensor, Tensor]]:
        columns, scored = ours().columns, theirs()
        pairs = [("log_p", [-one[1] for one in scored[1:]]), ("rank", [one[2] for one in scored[1:]])]
        mine, other = zip(*[(torch.tensor(columns[name][1:]), torch.tensor(one)) for name, one in pairs], strict=True)
        # Rounding may swap neighbours among tens of thousands of improbable tokens: ranks by their logarithms.
        return [(mine[0], other[0]), (mine[1].log(), other[1].log())]

    return Duel(ours, theirs, values)


def entropy(model: Model, tokens: int) -> Duel:
    """Logits to the entropy of each; ours with all the other statistics."""
    from trl.trainer.utils import entropy_from_logits  # type: ignore[import-not-found]

    logits, targets, _ = _predictions(model, tokens)
    ours = lambda: measure(logits, targets, model.encoder.vocabulary.digit_ids or ())  # noqa: E731
    theirs = lambda: entropy_from_logits(logits)  # noqa: E731
    return Duel(ours, theirs, lambda: [(ours().entropy, theirs())])


def dft(model: Model, tokens: int) -> Duel:
    """Logits to DFT's loss and its gradient on them."""
    from trl.trainer.utils import selective_log_softmax

    logits, targets, _ = _predictions(model, tokens)

    def ours() -> tuple[Tensor, Tensor]:
        z = logits[None].detach().requires_grad_()
        return _learn(objectives.dft(z, targets[None], shift=False), z)

    def theirs() -> tuple[Tensor, Tensor]:
        z = logits[None].detach().requires_grad_()
        log_p = selective_log_softmax(z, targets[None])
        return _learn(-(log_p * log_p.exp().detach()).mean(), z)

    return Duel(ours, theirs, lambda: _scaled(ours(), theirs()))


def dft_fused(model: Model, tokens: int) -> Duel:
    """Hidden states to DFT's loss and its gradient on them, the head frozen; theirs as its SFTTrainer has it done."""
    from trl.kernels import ChunkedLogProbFunction  # type: ignore[import-not-found]
    from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE

    network = training_copy(model, Settings(method="lora")).network
    passage = read_passages(model, [Example("", text_of(model, tokens))], "never")[0]
    rows = body_of(model, list(passage.stretches[0].ids))
    weight = network.get_output_embeddings().weight
    trainee, targets = Trainee(network, model.streams), passage.targets

    def ours() -> tuple[Tensor, Tensor]:
        done = fused(
            objectives.dft,
            rows,
            trainee.head,
            targets,
            vocabulary=model.vocabulary,
            digit_ids=model.encoder.vocabulary.digit_ids or (),
            count=targets.count,
            digit_count=targets.digit_count,
        )
        assert done.gradient is not None
        return torch.tensor(done.loss), done.gradient

    def theirs() -> tuple[Tensor, Tensor]:
        live = rows.detach().requires_grad_()
        outputs = ("log_probs", "entropy", "is_top1")
        log_p = ChunkedLogProbFunction.apply(
            live, weight, None, targets.ids, 1.0, _CHUNKED_LOGPROB_CHUNK_SIZE, None, 1.0, outputs
        )[0]
        return _learn(-(log_p * log_p.exp().detach()).mean(), live)

    return Duel(ours, theirs, lambda: _scaled(ours(), theirs()))


def number_loss(model: Model, tokens: int) -> Duel:
    """Logits to NTL-WAS, the mean over the digits, and its gradient on them."""
    from ntloss import NTLoss  # type: ignore[import-not-found]

    logits, targets, places = _predictions(model, tokens)
    # It adds the digits to the tokenizer. Its default is another loss than the paper's: `reweigh`.
    loss = NTLoss(copy.deepcopy(model.tokenizer), vocab_size=model.vocabulary, reweigh=False)
    digit_ids = model.encoder.vocabulary.digit_ids

    def ours() -> tuple[Tensor, Tensor]:
        z = logits[None].detach().requires_grad_()
        found = objectives.ntl_was(z, targets[None], shift=False, digit_ids=digit_ids, places=places[None])
        return _learn(found, z)

    def theirs() -> tuple[Tensor, Tensor]:
        z = logits[None].detach().requires_grad_()
        return _learn(loss(z, targets[None]), z)

    return Duel(ours, theirs, lambda: _scaled(ours(), theirs()))


DUELS = {
    "minicons": (minicons, "minicons", "text to surprisal and rank (ours: to a whole sheet)"),
    "entropy": (entropy, "trl", "logits to entropy (ours: to all statistics)"),
    "dft": (dft, "trl", "logits to DFT, backward included"),
    "dft_fused": (dft_fused, "trl", "hidden states to DFT, backward included (ours: and all statistics)"),
    "number_loss": (number_loss, "ntloss", "logits to NTL-WAS, backward included"),
}


def rows(model: Model, repeats: int) -> Iterator[Row]:
    """Ours over theirs, in time and in peak memory beyond what both start from."""
    ids = model.encoder.encode(text_of(model, TOKENS), bos="never").ids
    missing = set()
    for name, (prepare, package, words) in DUELS.items():
        try:
            duel = prepare(model, TOKENS)
        except ImportError:
            missing.add(package)
            continue
        duel.check()
        mine, other = shares([duel.ours, duel.theirs], lambda: forward(model, ids), repeats)
        ours, theirs = (peak("peers", name, side) for side in ("ours", "theirs"))
        values = (mine / other, ours / theirs)
        verdict = {0: "faster and smaller", 2: "**slower and larger**"}.get(
            sum(value > 1 for value in values), "faster, larger" if mine < other else "slower, smaller"
        )
        note = f"{verdict} ({mine:.2f} and {other:.2f} of a forward pass; {ours:.0f} and {theirs:.0f} MB)"
        what = f"{package} {version(package)}, {words}: ours / theirs, time / peak memory"
        yield Row(what, f"{TOKENS} tokens", values, note=note)
    if missing:
        raise NotMeasured(f"not installed: {', '.join(sorted(missing))}")


def _predictions(model: Model, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Logits of a text, what each should predict, and that target's place where it is a digit."""
    encoding = model.encoder.encode(text_of(model, tokens), bos="never")
    places = [torch.nan if digit is None else float(digit.place) for digit in encoding.digits]
    ids = list(encoding.ids)
    return forward(model, ids[:-1]).clone(), torch.tensor(ids[1:]), torch.tensor(places[1:])


def _learn(loss: Tensor, leaf: Tensor) -> tuple[Tensor, Tensor]:
    (gradient,) = torch.autograd.grad(loss, leaf)
    return loss.detach(), gradient


def _scaled(ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Loss and gradient, the gradient as a share of its own largest entry."""
    largest = theirs[1].abs().max()
    return [(ours[0], theirs[0]), (ours[1] / largest, theirs[1] / largest)]


def main(name: str, side: str) -> None:
    """Print the peak of one side of a duel."""
    model = losscore.load(device="cpu")
    prepare = DUELS[name][0]
    getattr(prepare(model, 32), side)()  # what libraries set up once is not the work's own
    duel = prepare(model, TOKENS)
    print(added(getattr(duel, side)))


if __name__ == "__main__":
    main(*sys.argv[1:])
