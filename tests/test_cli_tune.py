"""`losscore tune` on a tiny model: really trained, a few steps each time."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, LlamaConfig

import losscore
import losscore.models
from losscore import cli, finetuning, terminal
from losscore.errors import Cancelled, LosscoreError
from losscore.finetuning import FineTune, Record, Settings, Snapshot
from losscore.lanes.lane import format_value
from losscore.models import Model
from tests.models.tiny import save
from tests.test_cli import ESC, Result, Terminal, process, read_json

TEXT = "8 pens cost 8 * 12.5 = 100.0"
FAST = ("--steps", "2", "--lr", "0.02", "--no-probes")
LINES = [{"prompt": "2 pens: ", "response": "They cost 2 * 3 = 6."}, {"text": "Words are plain."}]
Run = Callable[..., Result]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """So small a model only loses by a second one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=256, max_position_embeddings=256, bos_token_id=0, eos_token_id=0, **sizes)
    return save(config, tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def tiny(folder: Path) -> Model:
    return losscore.load(str(folder))


@pytest.fixture
def run(
    tiny: Model, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> Run:
    """Runs `losscore tune` in an empty folder, on the tiny model."""
    monkeypatch.setattr(losscore.models, "load", lambda *_, **__: tiny)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)

    def call(*args: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as stopped:
            cli.main(["tune", *args])
        out, err = capsysbinary.readouterr()
        return Result(int(stopped.value.code or 0), out, err.decode())

    return call


def trained(model: Model, text: Any, objective: str = "nll", **settings: Any) -> Record:
    """The same run by the library."""
    with FineTune(model, text, objective=objective, settings=Settings(**{"steps": 2, "lr": 0.02} | settings)) as one:
        record = one.record()
        for snapshot in one:
            record.add(snapshot)
    return record


def steady(run_: Any) -> Any:
    """A run's JSON without what differs from one time to the next."""
    for snapshot in run_["snapshots"]:
        snapshot.pop("seconds")
    run_["provenance"].pop("ended")
    return run_


def test_the_command_does_what_the_library_does(run: Run, tiny: Model) -> None:
    result = run(TEXT, *FAST, "--objective", "deft", "-f", "json")
    assert result.code == 0
    made = read_json(result.out)
    assert made["provenance"]["ended"] == "finished after 2 steps"
    assert steady(made) == steady(json.loads(trained(tiny, TEXT, "deft").to_json()))


def test_the_table_shows_the_tokens_that_changed_most(run: Run, tiny: Model) -> None:
    result = run(TEXT, *FAST)
    assert result.code == 0
    assert ESC not in result.text
    lines = result.text.splitlines()
    assert max(map(len, lines)) <= 80
    record = trained(tiny, TEXT)
    before, after = (record.snapshots[at].sheet().columns for at in (0, -1))
    change = np.nan_to_num(np.abs(after["p"] - before["p"]))
    wanted = sorted(np.argsort(-change, kind="stable")[:20].tolist())
    rows = [line.split() for line in lines[3 : 3 + len(wanted)]]
    for row, cells in zip(wanted, rows, strict=True):
        figures = [format_value(float(value)) for value in (before["p"][row], after["p"][row])]
        ranks = [format_value(float(value)) for value in (before["rank"][row], after["rank"][row])]
        assert [cells[0], cells[2], cells[4], cells[6], cells[8]] == [str(row), *figures, *ranks]
    said = " ".join(result.text.split())
    assert "Finished after 2 steps." in said
    assert "27 targets in 1 text" in said
    assert f"before 0 {format_value(record.snapshots[0].p)} {format_value(record.snapshots[0].nll)}" in said
    assert f"nll 2 {format_value(record.snapshots[-1].p)} {format_value(record.snapshots[-1].nll)}" in said


def test_a_race_is_its_runs_side_by_side(run: Run, tiny: Model) -> None:
    names = ["deft", "ranktuner", "ranktuner:base=p"]
    options = [option for name in names for option in ("--objective", name)]
    result = run(TEXT, *FAST, *options, "-f", "json")
    assert result.code == 0
    runs = read_json(result.out)
    assert [one["provenance"]["objective"] for one in runs] == names
    alone = read_json(run(TEXT, *FAST, "--objective", names[2], "-f", "json").out)
    assert steady(runs[2]) == steady(alone)
    lines = run(TEXT, *FAST, *options).text.splitlines()
    assert max(map(len, lines)) <= 80
    p = [[snapshot["examples"][0]["p"] for snapshot in one["snapshots"]] for one in runs]
    change = {row: max(abs(one[-1][row] - one[0][row]) for one in p) for row in range(1, len(p[0][0]))}
    wanted = sorted(sorted(change, key=lambda row: -change[row])[:20])
    table = lines[lines.index(next(line for line in lines if line.startswith("───"))) + 1 :][:20]
    assert [line.split()[0] for line in table] == [str(row) for row in wanted]
    assert table[0].split()[2:] == [format_value(one[at][wanted[0]]) for one, at in [(p[0], 0), *((q, -1) for q in p)]]
    firsts = [line.split()[0] for line in lines if line.strip()]
    at = firsts.index("before")
    assert firsts[at : at + 5] == ["before", "deft", "ranktuner", "ranktuner:", "base=p"]
    assert "deft, ranktuner, ranktuner:base=p: finished after 2 steps." in lines


def test_the_folder_holds_each_run_and_its_adapter(run: Run, tiny: Model, folder: Path, tmp_path: Path) -> None:
    options = ["--objective", "deft", "--objective", "ranktuner:base=p"]
    result = run(TEXT, *FAST, *options, "--model", str(folder), "-o", "new", "-f", "json")
    assert (result.code, "Wrote new." in result.err) == (0, True)
    names = ["deft", "deft.json", "ranktuner-base=p", "ranktuner-base=p.json"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == names
    runs = read_json(result.out)
    assert [read_json((tmp_path / "new" / name).read_bytes()) for name in names[1::2]] == runs
    assert (tmp_path / "new" / "deft" / "adapter_model.safetensors").is_file()


def test_the_adapter_is_the_model_that_the_last_step_shows(folder: Path, tmp_path: Path) -> None:
    done = process("tune", TEXT, *FAST, "--model", str(folder), "-o", str(tmp_path / "out"), OMP_NUM_THREADS="1")
    assert done.returncode == 0
    made = read_json((tmp_path / "out" / "nll.json").read_bytes())
    ids = torch.tensor([made["tokens"][0]["id"]])
    tuned = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(folder), str(tmp_path / "out" / "nll"))
    with torch.no_grad():
        log_p = torch.log_softmax(tuned(input_ids=ids).logits[0, :-1].double(), -1)
    own = log_p.gather(-1, ids[0, 1:, None]).squeeze(-1).tolist()
    assert own == pytest.approx(made["snapshots"][-1]["examples"][0]["log_p"][1:], abs=1e-5)


def test_full_fine_tuning_writes_a_model(run: Run, tmp_path: Path) -> None:
    result = run(TEXT, *FAST, "--method", "full", "--output", "out")
    assert result.code == 0
    assert "all weights" in result.text
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {
        path.name for path in (tmp_path / "out" / "nll").iterdir()
    }


# What is refused before the training


def test_a_folder_that_cannot_be_used_is_refused_first(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(losscore.models, "load", lambda *_, **__: pytest.fail("loaded"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for output, said in [("full", "not empty"), ("file", "is a file"), ("no/new", "no folder no")]:
        result = run(TEXT, *FAST, "--output", output)
        assert (result.code, result.out) == (1, b"")
        assert said in result.err
        assert result.err.count("\n") == 1

    def refuse(self: Path, *_: Any, **__: Any) -> NoReturn:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as disk:
        disk.setattr(Path, "mkdir", refuse)
        for output in ("new", "empty"):
            assert "could not be written (Permission denied)" in run(TEXT, *FAST, "--output", output).err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "full"]
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([TEXT, "--objective", "dett"], "no objective 'dett'"),
        ([TEXT, "--objective", "nll", "--objective", "nll"], "nll is given twice"),
        ([TEXT, *["--objective", "nll"] * 5], "At most 4 objectives"),
        ([TEXT, "--lr", "2"], "learning rate"),
        ([TEXT, "--seed", "-1"], "seed"),
        ([TEXT, "--probe", "a text", "--no-probes"], "exclude each other"),
        ([TEXT, "--probe", "none.txt"], "no file none.txt"),
        (["none.jsonl"], "no file none.jsonl"),
        (["bad.jsonl"], "bad.jsonl, line 2"),
        (["good.jsonl", "--prompt", "a"], "--prompt goes with a text"),
        (["", "--no-probes"], "nothing to train on"),
    ],
)
def test_mistakes_are_one_sentence(run: Run, tmp_path: Path, args: list[str], said: str) -> None:
    (tmp_path / "bad.jsonl").write_text('{"text": "a b"}\n{"a": 1}\n', "utf-8")
    (tmp_path / "good.jsonl").write_text('{"text": "a b"}\n', "utf-8")
    result = run(*args)
    assert (result.code, result.out) == (1, b"")
    assert said in result.err.splitlines()[-1]
    assert result.err.count("losscore: ") == 1


def test_wrong_usage(run: Run) -> None:
    for option in (["--steps", "-1"], ["--steps", "1001"], ["--method", "qlora"], ["--format", "csv"]):
        assert run(TEXT, *option).code == 2


# Ctrl-C and errors


def interrupt_at(monkeypatch: pytest.MonkeyPatch, step: int, times: int = 1) -> None:
    add = Record.add

    def add_and_interrupt(self: Record, snapshot: Snapshot) -> None:
        add(self, snapshot)
        if snapshot.step == step:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Record, "add", add_and_interrupt)


def test_ctrl_c_keeps_what_there_is(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    interrupt_at(monkeypatch, 2)
    before = signal.getsignal(signal.SIGINT)
    result = run(TEXT, "--steps", "500", "--no-probes", "-f", "json", "-o", "out")
    assert result.code == 130
    assert "losscore: stopped after 2 steps\n" in result.err
    made = read_json(result.out)
    assert len(made["snapshots"]) == 3
    assert made["provenance"]["ended"] == "stopped after 2 steps"
    assert read_json((tmp_path / "out" / "nll.json").read_bytes()) == made
    assert (tmp_path / "out" / "nll" / "adapter_model.safetensors").is_file()
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_in_a_race_shows_how_far_each_came(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at(monkeypatch, 6)
    result = run(TEXT, "--steps", "500", "--objective", "nll", "--objective", "deft", "--probe", "Other words.")
    assert result.code == 130
    assert "losscore: nll: stopped after 6 steps\nlosscore: deft: stopped after 5 steps\n" in result.err
    assert "nll: these texts were last looked at at step 5." in result.text
    assert "deft: these texts" not in result.text


def test_a_second_ctrl_c_ends_at_once(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    interrupt_at(monkeypatch, 1, times=2)
    result = run(TEXT, *FAST, "--output", "out")
    assert (result.code, result.out) == (130, b"")
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_before_the_first_step_leaves_nothing(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def stopped(self: FineTune) -> Iterator[Snapshot]:
        signal.raise_signal(signal.SIGINT)
        raise Cancelled("The fine-tune was stopped.")
        yield

    monkeypatch.setattr(FineTune, "__iter__", stopped)
    result = run(TEXT, *FAST, "--output", "out")
    assert (result.code, result.out) == (130, b"")
    assert result.err == "losscore: stopped after 0 steps\n"
    assert list(tmp_path.iterdir()) == []


def test_an_error_on_the_way_keeps_the_steps_before_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    walk = FineTune.__iter__

    def broken(self: FineTune) -> Iterator[Snapshot]:
        for snapshot in walk(self):
            if snapshot.step == 2 and self.objective.name == "nll":
                raise LosscoreError("The loss was no finite number: choose a smaller learning rate.")
            yield snapshot

    monkeypatch.setattr(FineTune, "__iter__", broken)
    result = run(TEXT, *FAST, "--objective", "nll", "--objective", "deft", "-f", "json", "-o", "out")
    assert result.code == 1
    assert "losscore: nll: The loss was no finite number: choose a smaller learning rate.\n" in result.err
    assert [len(one["snapshots"]) for one in read_json(result.out)] == [2, 3]
    assert (tmp_path / "out" / "nll.json").is_file()


@pytest.mark.parametrize("fails", ["write_bytes", "rename"])
def test_a_full_disk_leaves_no_half_and_shows_the_tables(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: str
) -> None:
    def fill_up(self: Path, *_: Any) -> NoReturn:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(Path, fails, fill_up)
        result = run(TEXT, *FAST, "--output", "out")
    assert result.code == 1
    assert "No space left" in result.err
    assert "Finished after 2 steps." in result.text
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_stays_where_it_was(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    interrupt_at(monkeypatch, 1, times=2)
    run(TEXT, *FAST, "--output", "out")
    assert [path.name for path in tmp_path.rglob("*")] == ["out"]
    monkeypatch.undo()


# What is trained on


def test_a_file_of_pairs_and_a_limit(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES), "utf-8")
    made = read_json(run("mine.jsonl", *FAST, "-f", "json").out)
    assert made["texts"] == ["2 pens: They cost 2 * 3 = 6.", "Words are plain."]
    trained_on = [row for row, target in enumerate(made["tokens"][0]["is_target"]) if target]
    assert trained_on == list(range(len("2 pens: "), len(made["texts"][0])))
    assert len(read_json(run("mine.jsonl", *FAST, "--limit", "1", "-f", "json").out)["texts"]) == 1
    table = run("mine.jsonl", *FAST).text.splitlines()
    assert table[1].split()[:3] == ["text", "#", "token"]
    assert {line.split()[0] for line in table[3:23]} == {"1", "2"}


def test_a_text_a_file_standard_input_or_the_words_themselves(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"Plain.\r\n")
    (tmp_path / "mine.jsonl").write_text('{"text": "a"}', "utf-8")
    for args, stdin, text in [
        (["Plain words"], b"", "Plain words"),
        (["notes.txt"], b"", "Plain.\r\n"),
        (["-"], b'{"text": "a"}', '{"text": "a"}'),
        (["mine.jsonl", "--literal"], b"", "mine.jsonl"),
        (["words", "--prompt", "Plain "], b"", "Plain words"),
    ]:
        made = read_json(run(*args, *FAST, "-f", "json", stdin=stdin).out)
        assert made["texts"] == [text]
    assert sum(made["tokens"][0]["is_target"]) == len("words")


def test_probes_are_the_shipped_ones_ones_own_or_none(run: Run, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("From a file.", "utf-8")
    settings = ("--steps", "1", "--lr", "0.02")

    def probed(*args: str) -> list[str]:
        made = read_json(run(TEXT, *settings, *args, "-f", "json").out)
        return [probe["text"] for probe in made["snapshots"][-1]["probes"]]

    assert probed() == finetuning.shipped_probes()
    assert probed("--probe", "Other words.", "--probe", "other.txt") == ["Other words.", "From a file."]
    assert probed("--no-probes") == []
    table = run(TEXT, *settings, "--probe", f"Other {ESC}words.").text
    assert "Other ⟨U+001B⟩words." in table
    assert "Near 0 is good" in table
    assert "Near 0 is good" not in run(TEXT, *settings, "--no-probes").text


def test_options_reach_the_library(run: Run, monkeypatch: pytest.MonkeyPatch, tiny: Model) -> None:
    asked: dict[str, Any] = {}

    def load(name: str | None, **options: Any) -> Model:
        asked.update(options, name=name)
        return tiny

    monkeypatch.setattr(losscore.models, "load", load)
    numbers = {"steps": 1, "lr": 0.01, "rank": 4, "seed": 3, "batch": 1, "accumulation": 2}
    options = [part for name, value in numbers.items() for part in (f"--{name}", str(value))]
    options += ["--method", "lora", "--autocast", "--bos", "never", "--no-probes"]
    loading = ["--model", "m", "--device", "cpu", "--dtype", "bfloat16", "--download"]
    made = read_json(run(TEXT, *options, *loading, "-f", "json").out)
    asked.pop("progress")
    assert asked == {"name": "m", "tokenizer": None, "device": "cpu", "dtype": "bfloat16", "download": True}
    wanted = numbers | {"method": "lora", "autocast": True, "bos": "never"}
    assert wanted.items() <= made["provenance"]["settings"].items()


# Progress


def test_progress_in_a_log_is_a_line_for_each_tenth(run: Run) -> None:
    lines = run(TEXT, "--steps", "15", "--no-probes").err.splitlines()
    steps = [0, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15]
    assert [line.split(" · ")[0] for line in lines] == [f"step {step} of 15" for step in steps]
    assert all(line.split(" · ")[1].startswith("loss ") for line in lines)
    assert all(line.endswith(" s a step") for line in lines[1:])


def test_progress_on_a_terminal_says_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stderr", screen)
    with terminal.step_progress(4) as show:
        show(f"step 2 of 4 {ESC}· loss 1.500", 2)
    assert "step 2 of 4 ⟨U+001B⟩· loss 1.500" in screen.getvalue()
    assert "left" in screen.getvalue()


# Processes


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_on_a_process(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "losscore", "tune", TEXT, "--steps", "1000", "--no-probes", "--model", str(folder)]
    command += ["--format", "json", "--output", str(tmp_path / "out")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, **pipes) as running:  # type: ignore[call-overload]
        while not running.stderr.readline().startswith(b"step 0 of 1000"):
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=120)
    assert running.returncode == 130
    assert b"losscore: stopped after" in err
    assert b"Traceback" not in err
    made = read_json(out)
    assert made["provenance"]["ended"].startswith("stopped after")
    assert read_json((tmp_path / "out" / "nll.json").read_bytes()) == made


@pytest.mark.embedded
def test_the_embedded_model_in_a_process_of_its_own() -> None:
    done = process("tune", TEXT, "--objective", "deft", "--steps", "3", "--no-probes", "--format", "json")
    assert done.returncode == 0
    made = read_json(done.stdout)
    assert made["snapshots"][-1]["nll"] < made["snapshots"][0]["nll"]
    assert made["snapshots"][-1]["p"] > made["snapshots"][0]["p"]
