"""The real server as a process of its own, its words and its loads of models written down."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
_COUNTED = """
import sys
import losscore
from losscore import models
load = models.load
log_name, port = sys.argv[1:]
def counted(name=None, **settings):
    with open(log_name, "a") as log:
        print(name, file=log)
    return load(name, **settings)
losscore.load = models.load = counted
from losscore.cli import main
main(["app", "--port", port, "--no-browser"])
"""


@dataclass(frozen=True)
class Served:
    """`losscore app` as it runs: where it answers, its process, what it has said, which models it has loaded."""

    address: str
    process: psutil.Process
    words: Path
    loads: Path

    def memory(self) -> int:
        """Resident bytes."""
        return int(self.process.memory_info().rss)

    def complaints(self) -> list[str]:
        """Lines of its log that tell of an error."""
        lines = self.words.read_text("utf-8", "replace").splitlines()
        return [line for line in lines if "Traceback" in line or "Error" in line]

    def loaded(self) -> list[str]:
        """The name of each model loaded so far."""
        return self.loads.read_text("utf-8").splitlines()


@contextmanager
def served(folder: Path) -> Iterator[Served]:
    """Start it, and end it again; `folder` gets its log."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words, loads = folder / "server.log", folder / "loads.txt"
    with words.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", _COUNTED, str(loads), str(port)],
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
    server = Served(f"http://127.0.0.1:{port}", psutil.Process(process.pid), words, loads)
    try:
        _wait(server, process)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)


def _wait(server: Served, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"{server.address}/_stcore/health", timeout=1):
                return
        except OSError:
            assert process.poll() is None, server.words.read_text("utf-8", "replace")
            time.sleep(0.1)
    raise AssertionError("the server does not answer")
