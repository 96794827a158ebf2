"""`losscore noise-check` on a toy model; the shipped answers on the embedded one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import losscore.models
from losscore import cli
from losscore.noise import PAPER, noise_check, worked_answers
from losscore.objectives import CATALOGUE
from losscore.text.examples import Example
from tests.test_cli import Result, Toy, process, read_json

LINES = [{"prompt": "2 pens: ", "response": "They cost 2 * 3 = 6 euros in all."}, {"text": "Words are plain words."}]
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def toy() -> Toy:
    return Toy()


@pytest.fixture
def run(toy: Toy, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Run:
    """Runs the check in a folder with a file of answers, on the toy model."""
    monkeypatch.setattr(losscore.models, "load", lambda *_, **__: toy)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES), "utf-8")

    def call(*args: str) -> Result:
        with pytest.raises(SystemExit) as stopped:
            cli.main(["noise-check", *args])
        out, err = capsysbinary.readouterr()
        return Result(int(stopped.value.code or 0), out, err.decode())

    return call


def test_the_command_says_what_the_library_does(run: Run, toy: Toy) -> None:
    chosen = [CATALOGUE["deft"], CATALOGUE["ranktuner"].with_parameters(base="p")]
    mine = [Example("2 pens: ", LINES[0]["response"]), Example("", LINES[1]["text"])]
    wanted = noise_check(toy, mine, chosen, rate=0.4, seed=3)  # type: ignore[arg-type]
    args = ["mine.jsonl", "--objective", "deft", "--objective", "ranktuner:base=p", "--rate", "0.4", "--seed", "3"]
    result = run(*args, "--format", "json")
    assert (result.code, result.err) == (0, "")
    assert result.text == wanted.to_json()
    assert run(*args, "--format", "csv").out == wanted.to_csv().encode()


def test_the_table_says_how_to_read_it_and_what_the_paper_reports(run: Run) -> None:
    result = run("mine.jsonl", "--rate", "0.5")
    assert result.code == 0
    said = " ".join(result.text.split())
    assert "Low is good" in said
    assert all(f"{row.recall:.2%}" in said for row in PAPER)
    assert "2 answers" in said
    assert "\x1b" not in result.text
    assert max(map(len, result.text.splitlines())) <= 80
    rows = [line.split()[0] for line in result.text.splitlines()[2:10]]
    assert rows == ["nll", "linear", "dft", "eaft", "deft", "cayley", "ranktuner", "ranktuner:base=p"]


def test_the_shipped_answers_and_a_limit(run: Run) -> None:
    made = read_json(run("--limit", "2", "--objective", "nll", "-f", "json").out)
    assert made["provenance"]["answers"] == 2
    assert made["objectives"][0]["precision"] == pytest.approx(made["base_rate"])
    assert read_json(run("--objective", "nll", "-f", "json").out)["provenance"]["answers"] == len(worked_answers())


@pytest.mark.parametrize("suffix", ["json", "csv", "txt"])
def test_the_suffix_decides(run: Run, tmp_path: Path, suffix: str) -> None:
    result = run("mine.jsonl", "--objective", "nll", "--rate", "0.5", "-o", f"x.{suffix}")
    assert (result.code, result.out) == (0, b"")
    begins = {"json": b"{", "csv": b'"# losscore', "txt": b"objective"}[suffix]
    assert (tmp_path / f"x.{suffix}").read_bytes().startswith(begins)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["none.jsonl"], "There is no file none.jsonl"),
        (["--objective", "dett"], "no objective 'dett'"),
        (["--objective", "ranktuner:base"], "ranktuner:parameter=value"),
        (["--objective", "ranktuner:base=q"], "base must be one of"),
        (["--objective", "ranktuner:exponent=x"], "must be a number"),
        (["--objective", "nll:a=1"], "no parameter 'a'"),
        (["--output", "x.html"], "table (.txt), JSON or CSV"),
        (["bad.jsonl"], "bad.jsonl, line 2"),
        (["mine.jsonl", "--rate", "0"], "raise the rate"),
    ],
)
def test_mistakes_are_one_sentence(run: Run, tmp_path: Path, args: list[str], said: str) -> None:
    (tmp_path / "bad.jsonl").write_text('{"text": "a b"}\n{"a": 1}\n', "utf-8")
    result = run(*args)
    assert (result.code, result.out) == (1, b"")
    assert said in result.err
    assert result.err.count("\n") == 1


def test_wrong_usage(run: Run) -> None:
    assert run("--rate", "2").code == 2
    assert run("--format", "html").code == 2


def test_options_reach_the_loader(run: Run, monkeypatch: pytest.MonkeyPatch, toy: Toy) -> None:
    asked: dict[str, Any] = {}

    def load(name: str | None, **options: Any) -> Toy:
        asked.update(options, name=name)
        return toy

    monkeypatch.setattr(losscore.models, "load", load)
    run("mine.jsonl", "--rate", "0.5", "--model", "m", "--device", "cpu", "--dtype", "bfloat16", "--download")
    asked.pop("progress")
    assert asked == {"name": "m", "tokenizer": None, "device": "cpu", "dtype": "bfloat16", "download": True}


def test_its_help_imports_no_torch() -> None:
    code = (
        "import sys; from losscore.cli import main\n"
        "try: main(['noise-check', '--help'])\n"
        "except SystemExit: assert 'torch' not in sys.modules"
    )
    import subprocess

    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


@pytest.mark.embedded
def test_the_embedded_model_in_a_process_of_its_own() -> None:
    done = process("noise-check", "--limit", "4", "--format", "json", "--objective", "nll", "--objective", "dft")
    assert (done.returncode, done.stderr) == (0, b"")
    made = read_json(done.stdout)
    assert made["provenance"]["answers"] == 4
    assert made["objectives"][1]["precision"] < made["objectives"][0]["precision"]
