"""Options that several commands take, and the objective that a name on the command line stands for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from losscore.errors import LosscoreError

if TYPE_CHECKING:
    from losscore.objectives import Objective

ModelName = Annotated[
    str | None, typer.Option(help="A name, folder or GGUF file. The embedded model where none is named.")
]
TokenizerName = Annotated[
    str | None,
    typer.Option("--tokenizer", help="A folder or cached id to take the tokenizer from: a GGUF's original, say."),
]
Download = Annotated[bool, typer.Option("--download", help="Fetch the named model where it is missing.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")]
Dtype = Annotated[Literal["float32", "bfloat16", "float16"], typer.Option(help="What to compute in.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file.")]
BadBytes = Annotated[
    Literal["strict", "replace"], typer.Option(help="What to do with bytes of a file that are not valid.")
]
Bos = Annotated[
    Literal["auto", "always", "never"], typer.Option(help="Start with BOS: auto is the tokenizer's own setting.")
]


def objective_of(text: str) -> Objective:
    """The objective that `name` or `name:parameter=value,...` stands for."""
    from losscore.objectives import find

    name, _, settings = text.partition(":")
    chosen = find(name)
    values: dict[str, Any] = {}
    for setting in filter(None, settings.split(",")):
        key, equals, value = setting.partition("=")
        if not equals:
            raise LosscoreError(f"{setting!r} in {text!r} sets nothing: write {name}:parameter=value.")
        parameter = chosen.parameters.get(key)
        if parameter is None or parameter.choices:
            values[key] = value
        elif isinstance(parameter.default, bool):
            values[key] = {"true": True, "false": False}.get(value, value)
        else:
            try:
                values[key] = float(value)
            except ValueError:
                raise LosscoreError(f"{key} must be a number, not {value!r}.") from None
    return chosen.with_parameters(**values)
