"""One training step against transformers' own cross-entropy step: `python -m tests.bench.step [--long]`.

Same network (with its adapter, or all weights), same text, same optimizer and clipping, same process, one after the
other in turn; a figure is the median time of our step over the median time of theirs. Ours also takes every statistic
of every token on the way.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch

import losscore
import losscore.fused
from losscore.finetuning import METHODS, Settings
from losscore.finetuning.copies import training_copy
from losscore.finetuning.passage import read_passages
from losscore.finetuning.step import run_pass
from losscore.finetuning.trainee import Trainee
from losscore.models import Model
from losscore.objectives import CATALOGUE, Objective
from losscore.text.examples import Example
from tests.bench.clock import seconds
from tests.bench.table import Row

OBJECTIVES = ("nll", "deft", "ranktuner", "del_loss")
LENGTHS = (64, 512)
LONG = 2048
REPEATS = 7
MOST = 1.05
_WORDS = "Eight pens cost 8 * 12.5 = 100.0 euros and the words here are plain words that say what was paid for them. "


def text_of(model: Model, tokens: int) -> str:
    """A text of exactly that many tokens, at least 16: sentences, then single digits."""
    sentences = _WORDS * (tokens // 10 + 1)
    text = sentences[: model.encoder.encode(sentences, bos="never").end[tokens - 8]].rpartition(" ")[0]
    while (length := len(model.encoder.encode(text, bos="never"))) < tokens:
        text += "7" * (tokens - length)
    if length != tokens:
        raise ValueError(f"no text of {tokens} tokens was found, only one of {length}")
    return text


@dataclass
class Contest:
    """Both steps on one network. The learning rate is 0: each does all of its work and leaves the weights alone."""

    model: Model
    method: str
    tokens: int
    autocast: bool = False
    objectives: dict[str, Objective] = field(default_factory=lambda: {name: CATALOGUE[name] for name in OBJECTIVES})

    def __post_init__(self) -> None:
        copy = training_copy(self.model, Settings(method=self.method))  # type: ignore[arg-type]
        self.network, self.trained = copy.network, copy.trained
        self.trainee = Trainee(self.network, self.model.streams, self.autocast)
        text = text_of(self.model, self.tokens)
        self.passages = read_passages(self.model, [Example("", text)], "never")
        ids = self.model.encoder.encode(text, bos="never").ids
        self.ids = torch.tensor([ids], device=self.model.device)
        self.optimizer = torch.optim.AdamW(self.trained, lr=0.0, weight_decay=0.0)

    def theirs(self) -> float:
        """transformers' own cross-entropy step; its loss."""
        device = self.model.device.type
        with torch.autocast(device, dtype=torch.bfloat16) if self.autocast else nullcontext():
            loss = self.network(input_ids=self.ids, labels=self.ids, use_cache=False).loss
        loss.backward()
        return self._update(float(loss.detach()))

    def ours(self, name: str = "nll") -> float:
        """Our step with that objective; its loss."""
        done = run_pass(
            self.objectives[name],
            self.trainee,
            self.passages,
            vocabulary=self.model.vocabulary,
            digit_ids=self.model.encoder.vocabulary.digit_ids or (),
        )
        return self._update(done.loss)

    def _update(self, loss: float) -> float:
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def seconds(self, step: Callable[[], object]) -> float:
        """How long one step takes."""
        self._wait()
        began = time.perf_counter()
        step()
        self._wait()
        return time.perf_counter() - began

    def _wait(self) -> None:
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)


def race(contest: Contest, names: Sequence[str], repeats: int) -> tuple[float, dict[str, float]]:
    """Median seconds of their step, and of ours with each objective; the first round is not counted."""
    ours, theirs = contest.ours("nll"), contest.theirs()
    if abs(ours - theirs) > (3e-2 if contest.autocast else 1e-3) * max(1.0, abs(theirs)):
        raise SystemExit(f"The two steps differ: loss {ours} and {theirs}. No time is worth comparing.")
    steps: dict[str, Callable[[], object]] = {"": contest.theirs}
    steps |= {name: lambda name=name: contest.ours(name) for name in names}  # type: ignore[misc]
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(repeats + 1):
        for name, step in steps.items():
            seconds = contest.seconds(step)
            if turn:
                taken[name].append(seconds)
    medians = {name: median(values) for name, values in taken.items()}
    return medians.pop(""), medians


def reading_share(contest: Contest, repeats: int) -> float:
    """How much of our step's time goes into the statistics, with NLL: median of so many steps."""
    taken = 0.0
    measure = losscore.fused.measure

    def watched(*arguments: Any, **settings: Any) -> Any:
        nonlocal taken
        began = time.perf_counter()
        found = measure(*arguments, **settings)
        taken += time.perf_counter() - began
        return found

    shares = []
    with patch.object(losscore.fused, "measure", watched):
        for _ in range(repeats):
            taken = 0.0
            whole = seconds(contest.ours)
            shares.append(taken / whole)
    return median(shares)


def rows(model: Model, lengths: Sequence[int], repeats: int) -> Iterator[Row]:
    """The named objectives at each length and method."""
    titles = " / ".join(CATALOGUE[name].title for name in OBJECTIVES)
    for tokens in lengths:
        for method in METHODS:
            contest = Contest(model, method, tokens)
            theirs, ours = race(contest, OBJECTIVES, repeats)
            share = reading_share(contest, min(repeats, 3))
            name = {"lora": "LoRA", "full": "full"}[method]
            note = f"(theirs: {theirs:.2f} s; medians of {repeats})"
            values = tuple(ours[one] / theirs for one in OBJECTIVES)
            yield Row(f"one step, {name}: {titles} / cross-entropy", f"{tokens:,} tokens", values, MOST, note=note)
            without = (ours["nll"] * (1 - share) / theirs,)
            note = f"(the statistics are {share:.0%} of our step)"
            yield Row(f"one step, {name}: NLL without the statistics", f"{tokens:,} tokens", without, note=note)
            del contest


def catalogue_rows(model: Model, repeats: int) -> Iterator[Row]:
    """Every objective at the shortest length with LoRA: the middle and the slowest one of those that need no whole
    distribution, and each of those that do."""
    contest = Contest(model, "lora", LENGTHS[0], objectives=dict(CATALOGUE))
    ratio = {}
    for name in CATALOGUE:
        # Each beside steps of theirs of the same minute: over all of them the machine changes more than they differ.
        theirs, ours = race(contest, [name], repeats)
        ratio[name] = ours[name] / theirs
    whole = [name for name, one in CATALOGUE.items() if one.needs_distribution]
    others = sorted(set(ratio) - set(whole), key=ratio.__getitem__)
    size = f"{LENGTHS[0]} tokens"
    what = f"one step, LoRA: the middle / the slowest of the {len(others)} objectives of log p and digits"
    values = (ratio[others[len(others) // 2]], ratio[others[-1]])
    yield Row(what, size, values, MOST, note=f"({CATALOGUE[others[-1]].title})")
    titles = " / ".join(CATALOGUE[name].title for name in whole)
    yield Row(
        f"one step, LoRA: {titles}, which read the whole distribution", size, tuple(map(ratio.__getitem__, whole))
    )


def machine(model: Model) -> str:
    """What the figures were measured on."""
    chip = torch.cuda.get_device_name(model.device) if model.device.type == "cuda" else _processor()
    return f"{model.name} on {model.device} ({chip}), {torch.get_num_threads()} threads, torch {torch.__version__}"


def _processor() -> str:
    """The processor's name, as far as the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.step", description=__doc__)
    parser.add_argument("--long", action="store_true", help=f"also {LONG} tokens")
    parser.add_argument("--model", help="as losscore.load takes it; the embedded model without one")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"at least {REPEATS} for a figure to be quoted")
    options: Any = parser.parse_args(arguments)
    model = losscore.load(options.model, device=options.device)
    print(f"Our step / transformers' cross-entropy step, medians of {options.repeats}: {machine(model)}\n")
    print(f"| tokens | method | {' | '.join(OBJECTIVES)} | theirs, s |")
    print("|---|---" + "|---:" * (len(OBJECTIVES) + 1) + "|", flush=True)
    for tokens in (*LENGTHS, *([LONG] if options.long else [])):
        for method in METHODS:
            theirs, ours = race(Contest(model, method, tokens), OBJECTIVES, options.repeats)
            ratios = " | ".join(f"{ours[name] / theirs:.2f}" for name in OBJECTIVES)
            print(f"| {tokens:,} | {method} | {ratios} | {theirs:.3f} |", flush=True)


if __name__ == "__main__":
    main()
