"""losscore app: the site in the browser."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from losscore.cli.models import prepare_embedded
from losscore.errors import LosscoreError
from losscore.terminal import complain

_ADDRESS = "127.0.0.1"


def open_app(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where the app listens, on this computer only.")] = 8501,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Don't open a browser.")] = False,
) -> None:
    """Open the app in the browser. Installs and converts the embedded model first where that is still to do."""
    from importlib import import_module

    script = _app_script()
    _check_port(port)
    # A core stays free for the page and the browser: threads that wait for each other would starve both. Read when
    # torch is imported, once.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 2) - 1)))
    try:
        prepare_embedded()
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
    package = Path(__file__).parents[1]
    for script in (package / "_site" / "app" / "server.py", package.parent / "app" / "server.py"):
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
