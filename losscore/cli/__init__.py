"""The command line: losscore score | tune | noise-check | models | app. torch is imported only when a command runs."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from losscore.cli.models import list_models
from losscore.cli.noise import check_noise
from losscore.cli.score import score_text
from losscore.cli.site import open_app
from losscore.cli.tune import fine_tune
from losscore.errors import LosscoreError
from losscore.terminal import complain

app = typer.Typer(
    name="losscore",
    help="See, token by token, what a fine-tuning objective sees.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("score")(score_text)
app.command("tune")(fine_tune)
app.command("noise-check")(check_noise)
app.command("models")(list_models)
app.command("app")(open_app)


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit: 0, 1 after a sentence on stderr, 2 for wrong usage, 130 after Ctrl-C."""
    # A console that cannot show a character shows "?" for it; exports write bytes and are not touched by this.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        # A text is literal on Windows too: no "*", "~" or "%NAME%" in it is expanded.
        app(args=args, windows_expand_args=False)
    except LosscoreError as error:
        complain(error)
        sys.exit(1)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"losscore {version('losscore')}")
        except PackageNotFoundError:
            print("losscore, not installed as a package")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass
