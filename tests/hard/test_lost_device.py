"""A GPU that fails poisons the whole process: one sentence that says to start again, wherever it is met."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from streamlit.testing.v1 import AppTest

import losscore
from app import session
from losscore import cli
from losscore.errors import LosscoreError
from losscore.models import loading
from losscore.models.model import Model

WORDS = "CUDA error: device-side assert triggered\nCompile with `TORCH_USE_CUDA_DSA` to enable assertions."
SENTENCE = r"^The GPU failed .*: stop losscore and start it again, or use the CPU\.$"
ERRORS = [torch.AcceleratorError, RuntimeError]
MAIN = Path(__file__).resolve().parents[2] / "app" / "main.py"


def failing(error: type[Exception], words: str = WORDS) -> Any:
    def fail(*_: Any, **__: Any) -> NoReturn:
        raise error(words)

    return fail


@pytest.mark.parametrize("error", ERRORS)
def test_scoring_says_to_start_again(mini: Any, monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    monkeypatch.setattr(type(mini), "head", failing(error))
    with pytest.raises(LosscoreError, match=SENTENCE):
        losscore.score(mini, "The cat sat.")


def test_weighing_says_to_start_again(mini: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("losscore.scoring.weigh", failing(RuntimeError))
    with pytest.raises(LosscoreError, match=SENTENCE):
        losscore.score(mini, "The cat sat.", objectives=["emo"])


def test_a_fault_of_our_own_is_not_taken_for_a_lost_gpu(mini: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(mini), "head", failing(RuntimeError, "The size of tensor a must match"))
    with pytest.raises(RuntimeError, match="size of tensor a"):
        losscore.score(mini, "The cat sat.")


def test_loading_says_to_start_again(embedded: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "check_memory", failing(RuntimeError))
    with pytest.raises(LosscoreError, match=SENTENCE):
        losscore.load(embedded.origin)


def test_the_command_line_says_it_in_one_line(
    mini: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(losscore.models, "load", lambda *_, **__: mini)
    monkeypatch.setattr(type(mini), "head", failing(RuntimeError))
    with pytest.raises(SystemExit) as stopped:
        cli.main(["score", "The cat sat."])
    out, err = capsys.readouterr()
    assert (stopped.value.code, out) == (1, "")
    assert "start it again" in err
    assert "Traceback" not in err


def test_the_page_says_it_and_stays(mini: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_model", lambda name, dtype="float32": mini)
    monkeypatch.setattr(session, "model_names", lambda: ["mini"])
    with monkeypatch.context() as broken:
        broken.setattr(type(mini), "head", failing(RuntimeError))
        page = AppTest.from_file(str(MAIN), default_timeout=120).run()
        page.text_area(key="text").set_value("A text that nobody scored before.").run()
    assert not page.exception
    assert len(page.error) == 1
    assert "start it again" in page.error[0].value
    assert not page.get("bidi_component")
