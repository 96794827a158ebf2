"""losscore noise-check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from losscore.cli.options import Device, Download, Dtype, ModelName, Output, TokenizerName, objective_of
from losscore.cli.output import choose_format, print_or_write, write_bytes
from losscore.errors import LosscoreError
from losscore.terminal import noise_parts, progress_bar

_CHECKED = ("nll", "linear", "dft", "eaft", "deft", "cayley", "ranktuner", "ranktuner:base=p")


def check_noise(
    file: Annotated[
        Path | None,
        typer.Argument(help='JSONL: "prompt" and "response", or "text", a line. The 36 shipped answers without one.'),
    ] = None,
    objective: Annotated[
        list[str] | None,
        typer.Option(
            help=f"As deft or ranktuner:base=p; give it once for each. Without it: {', '.join(_CHECKED)}.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[float, typer.Option(min=0, max=1, help="Share of the gaps between words that get a word.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Which words, and where.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="Only that many answers.", show_default=False)] = None,
    model: ModelName = None,
    tokenizer: TokenizerName = None,
    download: Download = False,
    device: Device = "auto",
    dtype: Dtype = "float32",
    format_: Annotated[
        Literal["table", "json", "csv"] | None,
        typer.Option("--format", "-f", help="A table, or what --output's suffix says.", show_default=False),
    ] = None,
    output: Output = None,
) -> None:
    """Put random words into worked answers: how much of each objective's emphasis falls on them? Low is good."""
    kind = choose_format(format_, output)
    if kind not in ("table", "json", "csv"):
        raise LosscoreError("The noise check is written as a table (.txt), JSON or CSV: end the file's name in one.")
    with progress_bar() as show:
        show("starting", None)
        from losscore import models, noise
        from losscore.text.examples import read_examples

        examples = (noise.worked_answers() if file is None else read_examples(file))[:limit]
        chosen = [objective_of(name) for name in objective or _CHECKED]
        loaded = models.load(model, tokenizer=tokenizer, device=device, dtype=dtype, download=download, progress=show)
        found = noise.noise_check(
            loaded, examples, chosen, rate=rate, seed=seed, progress=lambda share: show("checking", share)
        )
    if kind == "table":
        print_or_write(noise_parts(found), output)
    else:
        write_bytes((found.to_json() if kind == "json" else found.to_csv()).encode(), output)
