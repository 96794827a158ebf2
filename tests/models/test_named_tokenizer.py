"""A tokenizer named beside its model: its ids are used, the sheet says so, one that does not fit is refused."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

import losscore
from losscore.errors import ModelError
from losscore.finetuning import FineTune

from . import tiny, tiny_gguf

TEXT = "  Hello  world\n<|eot_id|> café 123\n\n3"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A GGUF whose rule for cutting text nobody knows, so that its tokenizer is rebuilt wrongly."""
    tiny_gguf.write(tmp_path / "unknown.gguf", rule="something-new")
    return tmp_path / "unknown.gguf"


@pytest.fixture
def original(tmp_path: Path) -> Path:
    tiny_gguf.write(tmp_path / "known.gguf", rule="smollm")
    folder = tmp_path / "original"
    backend = losscore.load(str(tmp_path / "known.gguf"), device="cpu").tokenizer.backend_tokenizer
    # transformers adds an end of its own to what it rebuilds
    content = json.loads(backend.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["id"] < tiny.SIZE]
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(content))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return folder


def test_the_ids_are_the_originals_and_the_sheet_says_whose_tokenizer_it_was(
    file: Path, original: Path, no_network: None
) -> None:
    ids = PreTrainedTokenizerFast.from_pretrained(original)(TEXT).input_ids
    rebuilt = losscore.load(str(file), device="cpu")
    assert list(rebuilt.encoder.encode(TEXT).ids) != ids
    assert any("tokens may differ" in note for note in rebuilt.notes)
    model = losscore.load(str(file), tokenizer=str(original), device="cpu")
    sheet = losscore.score(model, TEXT)
    assert sheet.columns["id"].tolist() == ids
    assert sheet.provenance["tokenizer"].endswith(f", fast, 256 entries, of {original}")
    assert "of " not in losscore.score(rebuilt, TEXT).provenance["tokenizer"]
    assert not any("tokens may differ" in note for note in model.notes)


def test_a_model_folder_without_a_tokenizer_takes_the_named_one(tmp_path: Path, original: Path) -> None:
    folder = tmp_path / "bare"
    tiny.build(tiny.CONFIGS["llama"]()).save_pretrained(folder)
    with pytest.raises(ModelError, match="has no tokenizer"):
        losscore.load(str(folder))
    model = losscore.load(str(folder), tokenizer=str(original), device="cpu")
    assert list(model.encoder.encode(TEXT).ids) == PreTrainedTokenizerFast.from_pretrained(original)(TEXT).input_ids


def larger(folder: Path, original: Path) -> str:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(original)
    tokenizer.add_tokens(["one too many"])
    tokenizer.save_pretrained(folder / "larger")
    return str(folder / "larger")


def empty(folder: Path, _: Path) -> str:
    (folder / "empty").mkdir()
    return str(folder / "empty")


def damaged(folder: Path, _: Path) -> str:
    (folder / "damaged").mkdir()
    (folder / "damaged" / "tokenizer.json").write_text("{")
    return str(folder / "damaged")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (larger, r"has ids up to 256 and “unknown.gguf” knows only 256: name the tokenizer made for this model\.$"),
        (empty, "has no tokenizer"),
        (damaged, "cannot be read"),
        (lambda folder, _: str(folder / "unknown.gguf"), "is a file: name the folder"),
        (lambda *_: "nobody/nothing", "There is no tokenizer “nobody/nothing” on this machine"),
        (lambda *_: "  ", "is blank"),
    ],
)
def test_one_that_is_missing_or_does_not_fit_is_refused_in_one_sentence(
    file: Path, original: Path, tmp_path: Path, name: Any, words: str, no_network: None
) -> None:
    with pytest.raises(ModelError, match=words) as caught:
        losscore.load(str(file), tokenizer=name(tmp_path, original), device="cpu")
    assert "\n" not in str(caught.value)


def test_the_sheet_says_whether_the_tokenizer_is_fast_or_slow(mini: Any) -> None:
    kind = type(mini.tokenizer)
    assert (
        losscore.score(mini, "a b").provenance["tokenizer"] == f"{kind.__name__}, fast, {len(mini.tokenizer)} entries"
    )
    slow = copy.copy(mini.tokenizer)
    slow.__class__ = type("Unhurried", (kind,), {"is_fast": False})
    sheet = losscore.score(replace(mini, tokenizer=slow), "a b")
    assert sheet.provenance["tokenizer"] == f"Unhurried, slow, {len(slow)} entries"


def test_what_was_trained_with_it_is_read_with_it_again_from_anywhere(
    file: Path, original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = losscore.load(file.name, tokenizer=original.name, device="cpu")
    tunings = {method: FineTune(model, TEXT, steps=1, method=method) for method in ("lora", "full")}
    expected = {}
    for method, tuning in tunings.items():
        *_, last = tuning
        expected[method] = last.sheet()
        tuning.save(tmp_path / method)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for method, sheet in expected.items():
        again = losscore.score(losscore.load(str(tmp_path / method), device="cpu"), TEXT)
        assert again.columns["id"].tolist() == sheet.columns["id"].tolist(), method
        assert again.columns["log_p"][1:] == pytest.approx(sheet.columns["log_p"][1:], abs=1e-5), method
    # Saved anew, an adapter's tokenizer would not be lost on the way either.
    assert losscore.load(str(tmp_path / "lora"), device="cpu").tokenizer_origin == str(original)

    moved = original.rename(tmp_path / "moved")
    with pytest.raises(ModelError) as caught:
        losscore.load(str(tmp_path / "lora"), device="cpu")
    assert str(caught.value) == (
        f"The adapter “lora” was trained with the tokenizer in {original}, which is no longer there: put it back, or "
        "name it where it is now (--tokenizer), or write that as “read_with_tokenizer” into the adapter's "
        "losscore.json."
    )
    named = losscore.load(str(tmp_path / "lora"), tokenizer=str(moved), device="cpu")
    assert list(named.encoder.encode(TEXT).ids) == expected["lora"].columns["id"].tolist()


def test_an_adapter_of_a_model_with_its_own_tokenizer_names_none(file: Path, tmp_path: Path) -> None:
    FineTune(losscore.load(str(file), device="cpu"), TEXT, steps=0).save(tmp_path / "adapter")
    assert "read_with_tokenizer" not in json.loads((tmp_path / "adapter" / "losscore.json").read_text())
    assert losscore.load(str(tmp_path / "adapter"), device="cpu").tokenizer_origin == ""
