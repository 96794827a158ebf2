"""A process killed while it writes: nothing half-written under a final name, and the next one works."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import losscore
from losscore.errors import LosscoreError
from losscore.storage import write_whole
from tests.models import tiny

ROOT = Path(__file__).resolve().parents[2]
# The command line, killed at the n-th call of one function: as sudden as a power cut, at the worst moment.
KILLED = """
import os, pathlib, signal, sys
owner, name, calls, *arguments = sys.argv[1:]
import importlib
module, _, kind = owner.rpartition(".")
target = getattr(importlib.import_module(module), kind)
own, left = getattr(target, name), int(calls)
def fatal(*given, **more):
    global left
    left -= 1
    if not left:
        if name.startswith("write"):
            own(given[0], given[1][: len(given[1]) // 2], *given[2:])
        os.kill(os.getpid(), signal.SIGKILL)
    return own(*given, **more)
setattr(target, name, fatal)
from losscore.cli import main
main(arguments)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save(tiny.CONFIGS["llama"](), tmp_path_factory.mktemp("models") / "tiny")


def run(code: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *code, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
    )


def killed(where: str, calls: int, *arguments: str) -> None:
    owner, _, name = where.rpartition(".")
    done = run(["-c", KILLED], owner, name, str(calls), *arguments)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_killed_export_leaves_the_old_file_whole_and_the_next_one_replaces_it(folder: Path, tmp_path: Path) -> None:
    kept = tmp_path / "sheet.json"
    kept.write_bytes(b"the old one")
    command = ("score", "The cat sat.", "--model", str(folder), "-o", str(kept))
    killed("pathlib.Path.write_bytes", 1, *command)
    assert kept.read_bytes() == b"the old one"
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".partial"}
    assert run(["-m", "losscore"], *command).returncode == 0
    assert json.loads(kept.read_bytes())["tokens"]
    assert [path.name for path in tmp_path.iterdir()] == ["sheet.json"], "what the killed one left is gone"


def test_what_another_process_is_writing_stays(tmp_path: Path) -> None:
    alive, foreign = tmp_path / f".a[1].json.{os.getppid()}.partial", tmp_path / ".a1.json.999999999.partial"
    dead = tmp_path / ".a[1].json.999999999.partial"
    for path in (alive, foreign, dead):
        path.write_bytes(b"half")
    write_whole(tmp_path / "a[1].json", b"whole")
    assert {path.name for path in tmp_path.iterdir()} == {"a[1].json", alive.name, foreign.name}


def test_a_killed_export_leaves_no_file_where_there_was_none(folder: Path, tmp_path: Path) -> None:
    killed("pathlib.Path.replace", 1, "score", "The cat sat.", "--model", str(folder), "-o", str(tmp_path / "a.json"))
    assert not (tmp_path / "a.json").exists()


TUNE = ("tune", "The cat sat on the mat.", "--steps", "1", "--no-probes")


@pytest.mark.parametrize(
    ("where", "calls"),
    [
        # After a step; with half a record in the stage; when all is there, but nothing is moved up.
        ("losscore.finetuning.record.Record.add", 2),
        ("pathlib.Path.write_bytes", 1),
        ("pathlib.Path.rename", 2),
    ],
)
def test_a_killed_tune_leaves_nothing_half_written_and_can_be_run_again(
    folder: Path, tmp_path: Path, where: str, calls: int
) -> None:
    output = tmp_path / "run"
    command = (*TUNE, "--model", str(folder), "--output", str(output))
    killed(where, calls, *command)
    assert [path.name for path in output.glob("*") if not path.name.startswith(".")] == []
    with pytest.raises(LosscoreError):
        losscore.load(str(output))
    done = run(["-m", "losscore"], *command)
    assert done.returncode == 0, done.stderr
    assert json.loads((output / "nll.json").read_text("utf-8"))["snapshots"]
    assert losscore.load(str(output / "nll")).name == "nll"
    assert {path.name for path in output.iterdir()} == {"nll.json", "nll"}


def test_a_tune_killed_between_two_results_has_one_of_them_whole(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    # Renames: the adapter within the stage, then each result up under its own name.
    killed("pathlib.Path.rename", 3, *TUNE, "--model", str(folder), "--output", str(output))
    (found,) = [path for path in output.iterdir() if not path.name.startswith(".")]
    assert found == output / "nll"
    assert losscore.load(str(found)).name == "nll"
