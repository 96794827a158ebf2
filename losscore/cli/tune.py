"""losscore tune: fine-tune on a text, one objective or several side by side."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from losscore.cli.folder import check_folder, filled_folder
from losscore.cli.options import BadBytes, Bos, Device, Download, Dtype, ModelName, TokenizerName, objective_of
from losscore.cli.output import write_bytes
from losscore.cli.source import text_of
from losscore.errors import Cancelled, LosscoreError
from losscore.storage import write_whole
from losscore.terminal import complain, print_parts, progress_bar, say, step_progress, tune_parts

if TYPE_CHECKING:
    from losscore.finetuning import FineTune, Record
    from losscore.objectives import Objective
    from losscore.text.examples import Example

_MOST = 4


def fine_tune(
    file: Annotated[
        str,
        typer.Argument(
            help='A file of text, a .jsonl file of "prompt" and "response" (or "text") lines, a text, or - for '
            "standard input."
        ),
    ],
    objective: Annotated[
        list[str] | None,
        typer.Option(
            help=f"As deft or ranktuner:base=p. Give it up to {_MOST} times: they race from the same start. "
            "Without it: nll.",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=0, max=1000, help="Updates of the weights.")] = 20,
    lr: Annotated[
        float | None, typer.Option(min=0, help="Learning rate. Without it: one that suits the method.")
    ] = None,
    method: Annotated[
        Literal["lora", "full"], typer.Option(help="Train a small adapter, or every weight of a copy.")
    ] = "lora",
    rank: Annotated[int, typer.Option(min=1, help="The adapter's rank.")] = 8,
    seed: Annotated[int, typer.Option(help="The adapter's first values, and the order of the examples.")] = 0,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Examples a step. Without it: all of them.", show_default=False)
    ] = None,
    accumulation: Annotated[int, typer.Option(min=1, help="Parts a step's examples are run in, to save memory.")] = 1,
    autocast: Annotated[bool, typer.Option("--autocast", help="Multiply in bfloat16.")] = False,
    probe: Annotated[
        list[str] | None,
        typer.Option(
            help="A text, or a file of one, that is not trained on: what does it cost there? Give it once for each. "
            "Without it: some that come with losscore.",
            show_default=False,
        ),
    ] = None,
    no_probes: Annotated[bool, typer.Option("--no-probes", help="Do not measure what it costs elsewhere.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Only that many examples.", show_default=False)] = None,
    prompt: Annotated[
        str | None, typer.Option(help="Read before a text; its tokens are not trained on.", show_default=False)
    ] = None,
    literal: Annotated[bool, typer.Option("--literal", help="FILE is a text even where a file has that name.")] = False,
    errors: BadBytes = "strict",
    bos: Bos = "auto",
    model: ModelName = None,
    tokenizer: TokenizerName = None,
    download: Download = False,
    device: Device = "auto",
    dtype: Dtype = "float32",
    format_: Annotated[
        Literal["table", "json"],
        typer.Option("--format", "-f", help="On stdout: tables, or the run as JSON (several: an array)."),
    ] = "table",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="A new or empty folder for OBJECTIVE.json, each run in full, and OBJECTIVE/, its adapter for peft "
            "(full: the model).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Fine-tune a small model on FILE and show what changed, token by token. Ctrl-C stops and keeps what there is."""
    if output:
        check_folder(output)
    if probe and no_probes:
        raise LosscoreError("--probe and --no-probes exclude each other: leave one out.")
    examples = _examples(file, prompt, literal, errors)[:limit]
    texts = [text_of(text, errors) for text in probe or ()]
    asked = Event()
    with ExitStack() as open_runs:
        with progress_bar() as show:
            show("starting", None)
            from losscore import finetuning, models

            chosen = _objectives(objective or ["nll"])
            settings = finetuning.Settings(
                steps=steps,
                lr=lr,
                method=method,
                seed=seed,
                rank=rank,
                batch=batch,
                accumulation=accumulation,
                autocast=autocast,
                bos=bos,
            )
            loaded = models.load(
                model, tokenizer=tokenizer, device=device, dtype=dtype, download=download, progress=show
            )
            show("preparing the fine-tune", None)
            probes = () if no_probes else texts or finetuning.shipped_probes()
            runs = [
                open_runs.enter_context(
                    finetuning.FineTune(
                        loaded, examples, objective=one, probes=probes, stop=asked.is_set, settings=settings
                    )
                )
                for one in chosen
            ]
        for note in runs[0].notes:
            say(note)
        records = [run.record() for run in runs]
        failed = _race(runs, records, asked)
        measured = any(record.snapshots for record in records)
        if measured and output:
            try:
                _save(output, runs, records)
            except LosscoreError as error:  # what was measured is still worth showing
                complain(error)
                failed = True
    if measured and format_ == "json":
        write_bytes(_json(records).encode(), None)
    elif measured:
        print_parts(*tune_parts(records))
    if failed or asked.is_set():
        raise typer.Exit(1 if failed else 130)


def _examples(file: str, prompt: str | None, literal: bool, errors: Literal["strict", "replace"]) -> list[Example]:
    from losscore.text.examples import Example, parse_examples

    text = file if literal else text_of(file, errors)
    if not literal and file.lower().endswith(".jsonl") and os.path.exists(file):
        if prompt is not None:
            raise LosscoreError(f"--prompt goes with a text: the lines of {file} have their own prompts.")
        return parse_examples(text, file)
    return [Example(prompt or "", text)]


def _objectives(names: Sequence[str]) -> list[Objective]:
    if len(names) > _MOST:
        raise LosscoreError(f"At most {_MOST} objectives race at a time: leave {len(names) - _MOST} out.")
    chosen = [objective_of(name) for name in names]
    labels = [one.label for one in chosen]
    for label in labels:
        if labels.count(label) > 1:
            raise LosscoreError(f"The objective {label} is given twice: leave one out.")
    return chosen


def _race(runs: Sequence[FineTune], records: Sequence[Record], asked: Event) -> bool:
    """One step of each run in turn until all have ended, filling `records`; whether an error ended one."""
    live = {index: iter(run) for index, run in enumerate(runs)}
    failed = False
    with _interrupts(asked), step_progress(sum(run.settings.steps for run in runs)) as show:
        while live:
            for index, snapshots in list(live.items()):
                record = records[index]
                try:
                    record.add(next(snapshots))
                except StopIteration:
                    record.ended = f"finished after {_count(record)}"
                except Cancelled:
                    record.ended = f"stopped after {_count(record)}"
                except LosscoreError as error:
                    record.ended = str(error)
                    failed = True
                if record.ended:
                    del live[index]
                else:
                    show(_progress(record, records), sum(one.snapshots[-1].step for one in records if one.snapshots))
    for record in records:
        if not record.ended.startswith("finished"):
            name = f"{record.objective.label}: " if len(records) > 1 else ""
            say(f"losscore: {name}{record.ended}")
    return failed


@contextmanager
def _interrupts(asked: Event) -> Iterator[None]:
    """Ctrl-C sets `asked` instead of ending the program; a second one ends it."""

    def note(*_: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _count(record: Record) -> str:
    steps = record.snapshots[-1].step if record.snapshots else 0
    return f"{steps} step{'' if steps == 1 else 's'}"


def _progress(record: Record, records: Sequence[Record]) -> str:
    """Where a run stands."""
    last, updates = record.snapshots[-1], record.snapshots[1:]
    name = f"{record.objective.label}: " if len(records) > 1 else ""
    pace = f" · {sum(one.seconds for one in updates) / len(updates):.2f} s a step" if updates else ""
    return f"{name}step {last.step} of {last.steps} · loss {last.loss:.3f}{pace}"


def _json(records: Sequence[Record]) -> str:
    runs = [record.to_json() for record in records]
    return runs[0] if len(runs) == 1 else f"[{','.join(runs)}]"


def _save(output: Path, runs: Sequence[FineTune], records: Sequence[Record]) -> None:
    with filled_folder(output) as stage:
        for run, record in zip(runs, records, strict=True):
            if record.snapshots:
                name = re.sub(r"[^\w.+=,-]", "-", record.objective.label)
                write_whole(stage / f"{name}.json", record.to_json().encode())
                run.save(stage / name)
    say(f"Wrote {output}.")
