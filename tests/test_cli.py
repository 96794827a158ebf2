"""The command line, on a toy model; the embedded model where a real process is the point."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch
from rich.console import Console
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import losscore
import losscore.models
from losscore import cli, terminal
from losscore.cli import site
from losscore.errors import ModelError
from losscore.lanes import strip_payload
from losscore.models import Offer, sanity
from losscore.terminal.cells import HUES, shade
from losscore.text import TextEncoder

SENTENCE = "8 pens cost 8 * 12.5 = 100.0"
ESC = "\x1b"


class Toy:
    """Each byte a token; what follows a byte depends on that byte alone."""

    name, revision, dtype, device = "toy\x1b[31m", "1", torch.float32, torch.device("cpu")
    context, streams, notes, tokenizer_from = 4096, False, ("A toy\nmodel.",), ""

    def __init__(self) -> None:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        backend = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.decoder = decoders.ByteLevel()
        self.tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>")
        self.vocabulary = len(self.tokenizer)
        self.encoder = TextEncoder(self.tokenizer)
        self.logits = 3 * torch.randn(self.vocabulary, self.vocabulary, generator=torch.Generator().manual_seed(0))

    def blocks(
        self, ids: list[int], *, first: int = 0, piece: int = 1024, past: Any = None
    ) -> Iterator[tuple[int, torch.Tensor]]:
        yield first, self.logits[ids[first:]]

    def head(self, rows: torch.Tensor) -> torch.Tensor:
        return rows


@dataclass(frozen=True)
class Result:
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()


Run = Callable[..., Result]


@pytest.fixture(scope="module")
def toy() -> Toy:
    return Toy()


@pytest.fixture
def run(toy: Toy, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Run:
    """Runs the command line in an empty folder, on the toy model."""
    monkeypatch.setattr(losscore.models, "load", lambda *_, **__: toy)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)

    def call(*args: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as stopped:
            cli.main(list(args))
        out, err = capsysbinary.readouterr()
        return Result(int(stopped.value.code or 0), out, err.decode())

    return call


def refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")


def read_json(data: bytes) -> Any:
    return json.loads(data.decode("utf-8"), parse_constant=refuse)


def spelled(data: bytes) -> str:
    """The text that an exported JSON's tokens hold."""
    return bytes.fromhex("".join(token["bytes"] for token in read_json(data)["tokens"])).decode()


# Exports


def test_json_is_strict_and_in_utf8(run: Run) -> None:
    result = run("score", "3 값 \x1b", "--format", "json")
    assert result.code == 0
    assert result.err == ""
    assert spelled(result.out) == "3 값 \x1b"
    assert "⟨U+001B⟩" in result.text
    assert read_json(result.out)["tokens"][0]["p"] is None


@pytest.mark.parametrize("suffix", ["json", "csv", "html"])
def test_a_file_holds_the_bytes_that_stdout_gets(run: Run, toy: Toy, tmp_path: Path, suffix: str) -> None:
    wanted = losscore.score(toy, SENTENCE).export(suffix)  # type: ignore[arg-type]
    assert run("score", SENTENCE, "--format", suffix).out == wanted
    result = run("score", SENTENCE, "--output", f"x.{suffix}")
    assert (result.code, result.out) == (0, b"")
    assert (tmp_path / f"x.{suffix}").read_bytes() == wanted


def test_the_format_asked_for_beats_the_suffix(run: Run, tmp_path: Path) -> None:
    run("score", "7", "--output", "x.csv", "--format", "json")
    assert spelled((tmp_path / "x.csv").read_bytes()) == "7"


def test_parquet_goes_into_a_pipe_but_not_on_a_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("score", "7", "--format", "parquet").out.startswith(b"PAR1")
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    result = run("score", "7", "--format", "parquet")
    assert (result.code, result.out) == (1, b"")
    assert "--output" in result.err


def test_options_reach_the_library(run: Run, monkeypatch: pytest.MonkeyPatch, toy: Toy) -> None:
    asked: dict[str, Any] = {}

    def load(name: str | None, **options: Any) -> Toy:
        asked.update(options, name=name)
        return toy

    monkeypatch.setattr(losscore.models, "load", load)
    options = [
        "--model",
        "m",
        "--tokenizer",
        "t",
        "--device",
        "cpu",
        "--dtype",
        "bfloat16",
        "--download",
        "--bos",
        "always",
        "--special",
    ]
    made = read_json(run("score", "b<|end|>", "--prompt", "a ", *options, "-f", "json").out)
    asked.pop("progress")
    assert asked == {"name": "m", "tokenizer": "t", "device": "cpu", "dtype": "bfloat16", "download": True}
    assert made["provenance"]["bos_policy"] == "always"
    assert made["provenance"]["special_tokens_parsed"] is True
    assert [token["is_target"] for token in made["tokens"]] == [False, False, False, True, True]


def test_a_folder_or_a_missing_one_is_refused_before_the_model_is_loaded(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(losscore.models, "load", lambda *_, **__: pytest.fail("loaded"))
    (tmp_path / "folder").mkdir()
    for output, said in [("folder", "is a folder"), ("no/x.json", "no folder no"), ("x.doc", "x.doc does not say")]:
        result = run("score", "7", "--output", output)
        assert result.code == 1
        assert said in result.err


def test_a_file_is_written_whole_or_not_at_all(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b"old")

    def fill_up(self: Path, data: bytes) -> NoReturn:
        with self.open("wb") as stream:
            stream.write(data[:10])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(Path, "write_bytes", fill_up)
        result = run("score", "7", "--output", "x.json")
    assert result.code == 1
    assert "No space left" in result.err
    assert path.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes and links")
def test_a_file_written_over_keeps_its_mode_and_its_links(run: Run, tmp_path: Path) -> None:
    (tmp_path / "kept.json").touch(mode=0o600)
    (tmp_path / "x.json").symlink_to("kept.json")
    run("score", "7", "-o", "x.json")
    assert (tmp_path / "x.json").is_symlink()
    assert (tmp_path / "kept.json").stat().st_mode & 0o777 == 0o600
    assert spelled((tmp_path / "kept.json").read_bytes()) == "7"
    old = os.umask(0o022)
    try:
        run("score", "7", "-o", "new.json")
    finally:
        os.umask(old)
    assert (tmp_path / "new.json").stat().st_mode & 0o777 == 0o644


# The table


def test_the_table_shows_every_lane_as_a_number_and_a_bar(run: Run, toy: Toy) -> None:
    result = run("score", SENTENCE)
    lines = result.text.splitlines()
    assert max(map(len, lines)) <= 80
    assert ESC not in result.text
    payload = strip_payload(losscore.score(toy, SENTENCE))  # type: ignore[arg-type]
    first = next(row for row, line in enumerate(lines) if line.split()[:2] == ["0", "8"])
    assert lines[first].split()[2:] == ["–"] * 6
    for row in range(1, len(SENTENCE)):
        wanted = [str(row), payload["tokens"][row]]
        for lane in payload["lanes"]:
            value, fill = lane["value"][row], lane["fill"][row]
            wanted += ["–"] if value is None else [value, "▁▂▃▄▅▆▇█"[round(7 * fill / 100)]]
        assert lines[first + row].split() == wanted
    summary = " ".join(result.text.split())
    assert f"{len(SENTENCE) - 1} of {len(SENTENCE)} tokens scored" in summary
    assert "BOS: none, the tokenizer's own setting" in summary


def test_control_characters_of_names_and_notes_are_spelled_out(run: Run) -> None:
    result = run("score", "a\x1b]0;b")
    assert ESC not in result.text
    assert "toy⟨U+001B⟩[31m (1)" in result.text
    assert "Note: A toy⏎model." in result.text


def test_prompt_and_control_tokens_are_marked_without_colour(run: Run) -> None:
    text = run("score", "b<|end|>", "--prompt", "a ", "--special").text
    rows = [line.split()[:3] for line in text.splitlines()]
    for row in (["0", "›", "a"], ["1", "›", "·"], ["3", "◆", "<|end|>"]):
        assert row in rows
    assert ["2", "b"] in [row[:2] for row in rows]
    assert "› prompt, not counted · ◆ control token" in text
    assert "prompt, not counted" not in run("score", "b").text


def test_entropy_in_bits(run: Run) -> None:
    assert "nats" in run("score", "ab").text.split("token")[1].split("─")[0]
    assert "bits" in run("score", "ab", "--bits").text.split("token")[1].split("─")[0]


def test_a_console_with_few_characters_shows_the_rest_as_question_marks(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", console)
    assert run("score", "7⏎7").code == 0
    shown = console.buffer.getvalue()  # type: ignore[attr-defined]
    assert b"4 of 5 tokens scored" in shown
    assert b"?" in shown


def test_a_table_in_a_file_is_plain_text(run: Run, tmp_path: Path) -> None:
    run("score", SENTENCE, "-o", "x.txt")
    written = (tmp_path / "x.txt").read_text("utf-8")
    assert "RankTuner" in written
    assert ESC not in written


def test_an_empty_text_has_no_table(run: Run) -> None:
    result = run("score", "")
    assert result.code == 0
    assert result.text.startswith("0 of 0 tokens scored")


def painted(toy: Toy) -> str:
    console = Console(force_terminal=True, color_system="truecolor", width=80, file=io.StringIO())
    terminal.print_parts(*terminal.report(losscore.score(toy, SENTENCE), False), console=console)  # type: ignore[arg-type]
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_colour_is_for_terminals_and_goes_with_no_color(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert f"{ESC}[38;2;" in painted(toy)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "38;2;" not in painted(toy)
    assert "48;2;" not in painted(toy)


def luminance(triplet: tuple[int, int, int]) -> float:
    parts = [part / 255 for part in triplet]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("colours", ["15;0", "0;15"])
@pytest.mark.parametrize("hue", sorted(HUES))
def test_shaded_numbers_are_readable(monkeypatch: pytest.MonkeyPatch, colours: str, hue: str) -> None:
    monkeypatch.setenv("COLORFGBG", colours)
    assert shade(hue, 0.0) == ""
    backs = set()
    for percent in range(5, 101, 5):
        style: Any = shade(hue, percent / 100)
        pair = sorted(luminance(tuple(colour.triplet)) for colour in (style.color, style.bgcolor))
        assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5
        backs.add(style.bgcolor.triplet)
    assert len(backs) == 20


def test_every_lane_has_a_colour() -> None:
    from losscore.lanes import LANES

    assert {hue for lane in LANES for hue in (lane.hue, lane.low_hue) if hue} <= HUES.keys()


# What TEXT stands for


def test_a_file_is_read_byte_by_byte_and_said_to_be(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
    result = run("score", "notes.txt", "-f", "json")
    assert spelled(result.out) == "a\r\nb\r\n"
    assert "Reading the file notes.txt" in result.err
    assert "byte order mark was removed" in result.err
    assert spelled(run("score", "notes.txt", "--literal", "-f", "json").out) == "notes.txt"


def test_standard_input_is_read_byte_by_byte(run: Run) -> None:
    assert spelled(run("score", "-", "-f", "json", stdin=b"\xea\xb0\x92\r\n").out) == "값\r\n"
    assert spelled(run("score", "-", "--literal", "-f", "json").out) == "-"
    result = run("score", "-", stdin=b"ok\xff")
    assert result.code == 1
    assert "standard input" in result.err
    assert "byte offset 2" in result.err


def test_bad_bytes_stop_or_are_replaced(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"caf\xe9")
    result = run("score", "bad")
    assert (result.code, result.out) == (1, b"")
    assert "bad is not valid UTF-8 at byte offset 3" in result.err
    result = run("score", "bad", "--errors", "replace", "-f", "json")
    assert spelled(result.out) == "caf\ufffd"
    assert "1 invalid byte sequence replaced" in result.err


def test_a_mistyped_file_is_not_scored_as_a_text(run: Run, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("notse.txt", "folder"):
        result = run("score", name)
        assert (result.code, result.out) == (1, b"")
        assert "--literal" in result.err
        assert spelled(run("score", name, "--literal", "-f", "json").out) == name
    for text in ("I lost notes.txt", "and/or", "3.14", "x" * 5000, "~", "*.md b"):
        assert spelled(run("score", text, "-f", "json").out) == text


# Errors


def test_a_sentence_and_exit_code_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: Any, **__: Any) -> NoReturn:
        raise ModelError(f"There is no model {ESC}[31m: name another.")

    monkeypatch.setattr(losscore.models, "load", load)
    result = run("score", "a")
    assert (result.code, result.out) == (1, b"")
    assert result.err == "losscore: There is no model ⟨U+001B⟩[31m: name another.\n"


@pytest.mark.parametrize(
    "args", [["score"], ["score", "a", "--bogus"], ["score", "a", "--bos", "some"], ["nothing"], ["app", "--port", "0"]]
)
def test_wrong_usage_is_exit_code_2(run: Run, args: list[str]) -> None:
    result = run(*args)
    assert (result.code, result.out) == (2, b"")
    assert "Traceback" not in result.err


def test_ctrl_c_is_exit_code_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: Any, **__: Any) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(losscore.models, "load", load)
    result = run("score", "a")
    assert result.code == 130
    assert "Traceback" not in result.err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_shows_on_a_terminal_only(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("score", "abc").err == ""
    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", screen)
    with terminal.progress_bar() as show:
        show("half way", 0.5)
    assert "half way" in screen.getvalue()


# models and app


@pytest.fixture
def embedded_state(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The embedded model's set-up, pretended: `installed`, `ready` and the steps `taken`."""
    state = SimpleNamespace(installed=False, ready=False, taken=[])

    def install() -> None:
        state.taken.append("install")
        state.installed = True

    def prepare(progress: Any = None) -> None:
        state.taken.append("prepare")
        if not state.installed:
            raise ModelError("The embedded model is not installed.")
        state.ready = True

    def available() -> list[Offer]:
        return [
            Offer("smollm2-135m-instruct", "embedded", 134_515_008, 98, state.ready, "a note"),
            Offer("someone/tiny\x1b", "cache", None, 10, True, ""),
        ]

    monkeypatch.setattr(losscore.models, "available", available)
    monkeypatch.setattr(losscore.models, "install_embedded", install)
    monkeypatch.setattr(losscore.models, "prepare_embedded", prepare)
    monkeypatch.setattr("losscore.models.embedded.is_installed", lambda: state.installed)
    return state


def test_models_are_listed(run: Run, embedded_state: SimpleNamespace) -> None:
    result = run("models")
    rows = [line.split() for line in result.text.splitlines()]
    assert ["smollm2-135m-instruct", "embedded", "135", "M", "no", "a", "note"] in rows
    assert ["someone/tiny⟨U+001B⟩", "cache", "–", "yes"] in rows
    offers = read_json(run("models", "--format", "json").out)
    assert [(offer["name"], offer["ready"]) for offer in offers] == [
        ("smollm2-135m-instruct", False),
        ("someone/tiny\x1b", True),
    ]
    assert embedded_state.taken == []


def test_install_does_what_is_still_to_do(run: Run, embedded_state: SimpleNamespace) -> None:
    result = run("models", "--install")
    assert embedded_state.taken == ["install", "prepare"]
    assert "98 MB" in result.err
    assert " yes " in result.text.split("embedded")[1].splitlines()[0]
    run("models", "--install")
    assert embedded_state.taken == ["install", "prepare"]
    embedded_state.ready = False
    run("models", "--install")
    assert embedded_state.taken == ["install", "prepare", "prepare"]


@pytest.fixture
def streamlit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """The arguments with which Streamlit was started; it starts nothing."""
    started: list[list[str]] = []
    fake = SimpleNamespace(main=lambda args, prog_name: started.append(args))
    monkeypatch.setitem(sys.modules, "streamlit.web.cli", fake)
    monkeypatch.setattr(site, "_app_script", lambda: tmp_path / "main.py")
    return started


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_app_starts_on_this_computer_only(
    run: Run, embedded_state: SimpleNamespace, streamlit: list[list[str]], free_port: int, tmp_path: Path
) -> None:
    result = run("app", "--port", str(free_port), "--no-browser")
    assert result.code == 0
    assert f"http://127.0.0.1:{free_port}" in result.text
    assert embedded_state.taken == ["install", "prepare"]
    (args,) = streamlit
    assert args[:2] == ["run", str(tmp_path / "main.py")]
    assert {
        "--server.address=127.0.0.1",
        f"--server.port={free_port}",
        "--server.headless=true",
        "--browser.gatherUsageStats=false",
    } <= set(args)


@pytest.mark.parametrize(("display", "headless"), [({"DISPLAY": ":0"}, "false"), ({}, "true")])
def test_a_browser_needs_a_display(
    run: Run,
    embedded_state: SimpleNamespace,
    streamlit: list[list[str]],
    free_port: int,
    monkeypatch: pytest.MonkeyPatch,
    display: dict[str, str],
    headless: str,
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in display.items():
        monkeypatch.setenv(name, value)
    run("app", "--port", str(free_port))
    assert f"--server.headless={headless}" in streamlit[0]


def test_the_app_starts_without_the_embedded_model_too(
    run: Run,
    embedded_state: SimpleNamespace,
    streamlit: list[list[str]],
    free_port: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def install() -> NoReturn:
        raise ModelError("It could not be installed.")

    monkeypatch.setattr(losscore.models, "install_embedded", install)
    result = run("app", "--port", str(free_port))
    assert "losscore: It could not be installed." in result.err
    assert len(streamlit) == 1


def test_a_port_in_use_is_a_sentence_before_anything_is_prepared(
    run: Run, embedded_state: SimpleNamespace, streamlit: list[list[str]]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run("app", "--port", str(port))
    assert result.code == 1
    assert f"Port {port} is in use" in result.err
    assert "--port" in result.err
    assert (embedded_state.taken, streamlit) == ([], [])


# Processes


def process(*args: str, stdin: bytes | None = None, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "losscore", *args]
    return subprocess.run(command, input=stdin, capture_output=True, env=os.environ | environment, check=False)


@pytest.mark.parametrize("args", [["--help"], ["score", "--help"], ["tune", "--help"], ["--version"], ["models"]])
def test_what_needs_no_model_imports_no_torch(args: list[str]) -> None:
    script = f"""
import sys
from losscore.cli import main
try:
    main({args!r})
except SystemExit as stopped:
    assert not stopped.code
print(sorted({{"torch", "transformers", "pandas", "streamlit"}} & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.embedded
def test_the_embedded_model_in_a_process_of_its_own() -> None:
    done = process("score", "--format", "json", SENTENCE)
    assert (done.returncode, done.stderr) == (0, b"")
    assert spelled(done.stdout) == SENTENCE
    tokens = read_json(done.stdout)["tokens"]
    assert tokens[0]["p"] is None
    assert all(0 < token["p"] < 1 for token in tokens[1:])
    assert sum(token["del_penalty"] is not None for token in tokens) == 8


@pytest.mark.embedded
def test_a_console_that_cannot_show_a_character() -> None:
    done = process("score", "-", stdin="값 7".encode(), PYTHONIOENCODING="cp1252", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"tokens scored" in done.stdout
    done = process("score", "-", "-f", "json", stdin="값 7".encode(), PYTHONIOENCODING="cp1252", PYTHONUTF8="0")
    assert spelled(done.stdout) == "값 7"


@pytest.mark.embedded
@pytest.mark.parametrize("format_", ["json", "table"])
def test_a_pipe_closed_early_is_no_trouble(format_: str) -> None:
    command = [sys.executable, "-m", "losscore", "score", SENTENCE * 60, "--format", format_]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.read(10)
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(60) in (0, 1)


def test_further_objectives_become_columns_of_an_export(run: Run, toy: Toy) -> None:
    done = run("score", SENTENCE, "--format", "json", "--objective", "dft", "--objective", "tsallis:a=1")
    row = read_json(done.out)["tokens"][3]
    assert row["weight_dft"] == pytest.approx(row["p"])
    assert row["weight_tsallis:a=1"] == pytest.approx(row["p"])
    assert run("score", SENTENCE, "--objective", "dtf").code == 1


def test_a_check_says_how_far_a_device_differs_from_the_cpu(
    run: Run, mini: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Off(type(mini)):  # type: ignore[misc]
        """A device that doubles every logit."""

        def head(self, rows: Any) -> Any:
            return 2 * super().head(rows)

    off = Off.__new__(Off)
    off.__dict__.update(mini.__dict__, device=torch.device("cpu"), dtype=torch.bfloat16)
    asked: list[tuple[Any, ...]] = []

    def load(name: str | None, *, device: str, dtype: str, **_: Any) -> Any:
        asked.append((name, device, dtype))
        return mini if (device, dtype) == ("cpu", "float32") else off

    monkeypatch.setattr(losscore.models, "load", load)
    result = run("models", "--check", "--model", "m", "--device", "mps", "--dtype", "bfloat16")
    assert asked == [("m", "mps", "bfloat16"), ("m", "cpu", "float32")]
    means = [losscore.score(model, sanity.SENTENCE).summary.mean_nll for model in (mini, off)]
    assert abs(means[0] - means[1]) > 0.01
    said = result.out.decode()
    assert said.startswith("bfloat16 against float32: p differs by at most ")
    assert said.endswith(f"mean NLL {means[0]:.4f} against {means[1]:.4f} nats.\n")
    assert "p differs by at most 0, " in run("models", "--check", "--device", "cpu").out.decode()
