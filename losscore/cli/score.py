"""losscore score."""

from __future__ import annotations

from typing import Annotated

import typer

from losscore.cli.options import (
    BadBytes,
    Bos,
    Device,
    Download,
    Dtype,
    ModelName,
    Output,
    TokenizerName,
    objective_of,
)
from losscore.cli.output import Format, choose_format, print_or_write, write_bytes
from losscore.cli.source import text_of
from losscore.terminal import progress_bar, report


def score_text(
    text: Annotated[
        str, typer.Argument(help="A text, a file of text, or - for standard input. Put -- before a leading dash.")
    ],
    prompt: Annotated[str | None, typer.Option(help="Read before TEXT; its tokens are not scored.")] = None,
    literal: Annotated[bool, typer.Option("--literal", help="TEXT is a text even where a file has that name.")] = False,
    errors: BadBytes = "strict",
    special: Annotated[
        bool, typer.Option("--special", help="Read typed control tokens such as <|endoftext|> as such.")
    ] = False,
    bos: Bos = "auto",
    model: ModelName = None,
    tokenizer: TokenizerName = None,
    download: Download = False,
    device: Device = "auto",
    dtype: Dtype = "float32",
    format_: Annotated[
        Format | None,
        typer.Option("--format", "-f", help="A table, or what --output's suffix says.", show_default=False),
    ] = None,
    output: Output = None,
    objective: Annotated[
        list[str] | None,
        typer.Option(
            help="As dft or ranktuner:base=p: adds a column weight_… to JSON, CSV and Parquet. Give it once for each.",
            show_default=False,
        ),
    ] = None,
    bits: Annotated[bool, typer.Option("--bits", help="Entropy in bits, not nats, in the table.")] = False,
) -> None:
    """Score every token of TEXT: probability, entropy, rank, RankTuner scale, DEFT gate, DEL penalty."""
    kind = choose_format(format_, output)
    content = text if literal else text_of(text, errors)
    with progress_bar() as show:
        show("starting", None)
        from losscore import models
        from losscore.scoring import score

        loaded = models.load(model, tokenizer=tokenizer, device=device, dtype=dtype, download=download, progress=show)
        sheet = score(
            loaded,
            content,
            prompt,
            bos=bos,
            parse_special=special,
            objectives=[objective_of(name) for name in objective or ()],
            progress=lambda share: show("scoring", share),
        )
    if kind != "table":
        write_bytes(sheet.export(kind), output)
    else:
        print_or_write(report(sheet, bits), output)
