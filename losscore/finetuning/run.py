"""A fine-tune from beginning to end: a walk that yields a snapshot before each update and one at the end."""

from __future__ import annotations

import io
import math
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from losscore.errors import Cancelled, LosscoreError
from losscore.finetuning.copies import TrainingCopy, training_copy
from losscore.finetuning.guards import as_last_seen, plainly
from losscore.finetuning.passage import Passage, read_passages
from losscore.finetuning.probes import ProbeReading, Probes
from losscore.finetuning.record import Record
from losscore.finetuning.saving import save_copy
from losscore.finetuning.settings import Settings
from losscore.finetuning.snapshot import Reading, Snapshot, means, split
from losscore.finetuning.step import Pass, run_pass
from losscore.finetuning.trainee import Trainee
from losscore.objectives import Objective, find
from losscore.text.examples import Given, as_examples

if TYPE_CHECKING:
    from losscore.models import Model

_WATCHED = 8


def finetune(
    model: Model,
    examples: Given,
    *,
    objective: Objective | str = "nll",
    steps: int = 20,
    lr: float | None = None,
    method: str = "lora",
    seed: int = 0,
    probes: str | Sequence[str] = (),
    **settings: Any,
) -> Iterator[Snapshot]:
    """Fine-tune a copy of `model` on `examples` and yield `steps` + 1 snapshots; closing the generator frees the copy.

    examples: a text, texts, (prompt, response) pairs, or dicts of the two; only the responses are trained on, as they
    are: no end-of-text token is added. probes: texts that are not trained on, to see what it costs elsewhere. The other
    settings are those of `Settings`. For the tuned model itself, use `FineTune`. Raises LosscoreError, one plain
    sentence; snapshots already yielded stay good.
    """
    run = FineTune(
        model, examples, objective=objective, probes=probes, steps=steps, lr=lr, method=method, seed=seed, **settings
    )

    def walk() -> Iterator[Snapshot]:
        with run:
            yield from run

    return walk()


class FineTune:
    """One fine-tune of a copy of `model`, which itself is never changed. Iterate once for its snapshots."""

    # What is made in a caller's inference mode never learns anything, and does not say so.
    @torch.inference_mode(False)
    def __init__(
        self,
        model: Model,
        examples: Given,
        *,
        objective: Objective | str = "nll",
        probes: str | Sequence[str] = (),
        stop: Callable[[], bool] | None = None,
        settings: Settings | None = None,
        **changes: Any,
    ) -> None:
        """Read the examples and make the copy. stop(): return True to end with Cancelled, within a step.

        changes: fields of `Settings`. Raises LosscoreError where something of it cannot be done.
        """
        try:
            self.settings = replace(settings or Settings(), **changes)
        except TypeError as error:
            raise LosscoreError(f"There is no such setting ({error}).") from error
        self.objective = find(objective) if isinstance(objective, str) else objective
        if not isinstance(self.objective, Objective):
            raise LosscoreError(f"The objective must be a name or one of losscore.objectives, not {objective!r}.")
        self._stop = stop
        self._begun = False
        self._digit_ids = tuple(model.encoder.vocabulary.digit_ids or ())
        self._base = model
        given = as_examples(examples)
        with plainly(self.device):
            self._passages = read_passages(model, given, self.settings.bos, self._tick)
            self._watched = self._passages[:_WATCHED]
            self._left_out = len(given) - len(self._passages)
            self._probes = Probes(model, [probes] if isinstance(probes, str) else probes, self.settings.bos, self._tick)
            self._tick()
            self._copy: TrainingCopy | None = training_copy(model, self.settings)
        self.trainable = sum(parameter.numel() for parameter in self._copy.trained)
        # Sheets are made with the base's tokenizer and name; the copy itself they do not keep alive.
        notes = (*model.notes, *self.notes)
        self._shown = _with_encoder(replace(model, dtype=torch.float32, notes=notes), model)

    @property
    def device(self) -> torch.device:
        """Where it trains."""
        return self._base.device

    @property
    def notes(self) -> tuple[str, ...]:
        """What was asked and could not be done, in sentences; every sheet carries them too."""
        if not self._left_out:
            return ()
        count = len(self._passages) + self._left_out
        verb, who = ("has", "it is") if self._left_out == 1 else ("have", "they are")
        return (f"{self._left_out} of {count} examples {verb} no token to train on: {who} left out.",)

    def record(self) -> Record:
        """A fresh record for this run."""
        return Record(self.objective, self.settings, self._provenance())

    def __iter__(self) -> Iterator[Snapshot]:
        copy, settings = self._alive(), self.settings
        if self._begun:
            raise LosscoreError("This fine-tune has been run: start a new one.")
        self._begun = True
        trainee = Trainee(copy.network, self._base.streams, settings.autocast)
        optimizer = torch.optim.AdamW(copy.trained, lr=settings.rate, weight_decay=0.0)
        order = torch.Generator().manual_seed(settings.seed)
        queue: list[Passage] = []
        # Where a step sees only some examples, the watched ones are looked at besides.
        everything = settings.batch is None or settings.batch >= len(self._passages)
        began = time.perf_counter()
        for step in range(settings.steps + 1):
            last = step == settings.steps
            with torch.inference_mode(False), plainly(self.device), as_last_seen(copy.trained if step else []):
                if step:
                    self._tick()
                    for group in optimizer.param_groups:
                        group["lr"] = settings.rate_at(step - 1)
                    optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                seen = self._passages if everything else self._watched
                done = self._pass(trainee, seen, learn=everything and not last)
                if not everything and not last:
                    self._pass(trainee, self._next_batch(queue, order), learn=True)
                norm = None if last else _norm(copy.trained, settings.clip)
                self._check(done, step, norm)
                readings = tuple(map(Reading, seen, split(done.statistics, seen)))[:_WATCHED]
                # At the start nothing has moved, and the first snapshot should come soon.
                look = last or (step and step % settings.probe_every == 0)
                probes: tuple[ProbeReading, ...] = self._probes.read(trainee, self._tick) if look else ()
            yield Snapshot(
                step=step,
                steps=settings.steps,
                loss=done.loss,
                **means(done),  # type: ignore[arg-type]
                gradient_norm=norm,
                seconds=time.perf_counter() - began,
                probes=probes,
                readings=readings,
                model=self._shown,
                provenance=self._provenance(),
            )
            began = time.perf_counter()

    def tuned(self, name: str) -> Model:
        """The model as it stands now, under that name, to be scored like any other; stays after `close`."""
        copy, done = self._alive(), self._provenance()
        note = f"Fine-tuned from {self._base.name} with {done['objective']}."
        tuned = replace(
            self._base,
            network=copy.network,
            name=name,
            revision=f"{self._base.name}, {self._base.revision}; {done['objective']}, {done['settings']}",
            dtype=torch.float32,
            notes=(*self._base.notes, note),
        )
        return _with_encoder(tuned, self._base)

    def save(self, folder: str | Path) -> None:
        """The adapter in peft's own format, or for full fine-tuning the whole model; `losscore.load` reads both.

        Raises LosscoreError where the folder exists and is not empty, or cannot be written.
        """
        save_copy(self._alive(), self._base, self._provenance(), Path(folder))

    def adapter_archive(self) -> bytes:
        """What `save` writes, as a .zip."""
        out = io.BytesIO()
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "adapter"
            self.save(folder)
            with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
                for path in sorted(folder.rglob("*")):
                    archive.write(path, path.relative_to(folder))
        return out.getvalue()

    def close(self) -> None:
        """Let go of the copy. The shared model and the snapshots stay."""
        self._copy = None

    def __enter__(self) -> FineTune:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _alive(self) -> TrainingCopy:
        if self._copy is None:
            raise LosscoreError("This fine-tune is closed: start a new one.")
        return self._copy

    def _pass(self, trainee: Trainee, passages: Sequence[Passage], *, learn: bool) -> Pass:
        return run_pass(
            self.objective,
            trainee,
            passages,
            vocabulary=self._base.vocabulary,
            digit_ids=self._digit_ids,
            parts=self.settings.accumulation,
            learn=learn,
            tick=self._tick,
        )

    def _tick(self) -> None:
        if self._stop is not None and self._stop():
            raise Cancelled("The fine-tune was stopped.")

    def _next_batch(self, queue: list[Passage], order: torch.Generator) -> list[Passage]:
        """The examples of the next step, in an order drawn anew for each round."""
        size = self.settings.batch or len(self._passages)
        while len(queue) < size:
            queue += [self._passages[i] for i in torch.randperm(len(self._passages), generator=order).tolist()]
        return [queue.pop(0) for _ in range(size)]

    def _check(self, done: Pass, step: int, norm: float | None = None) -> None:
        if not (math.isfinite(done.loss) and (norm is None or math.isfinite(norm))):
            raise LosscoreError(
                f"The loss or its gradient was no finite number at step {step}: choose a smaller learning rate."
            )

    def _provenance(self) -> dict[str, Any]:
        return {
            "base": self._base.name,
            "base_revision": self._base.revision,
            "objective": self.objective.label,
            "objective_settings": self.objective.values,
            "settings": {**asdict(self.settings), "lr": self.settings.rate},
            "examples": len(self._passages),
            "examples_left_out": self._left_out,
            "targets": sum(passage.targets.count for passage in self._passages),
            "trained_parameters": self.trainable,
        }


def _norm(parameters: Sequence[torch.nn.Parameter], clip: float) -> float:
    """The norm of all gradients together; where it is larger than `clip` they are scaled down to it."""
    return float(torch.nn.utils.clip_grad_norm_(parameters, clip or math.inf))


def _with_encoder(model: Model, like: Model) -> Model:
    # The encoder is made from the tokenizer alone, and takes a while to make.
    model.__dict__["encoder"] = like.encoder
    return model
