"""Texts beyond the context, and far beyond: every token once, nothing indexed past the end, no more work than asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import losscore
from losscore.errors import ModelError
from losscore.models import Model, load
from tests.models.tiny import CONFIGS, save
from tests.tiny import Oracle, smol_like


@pytest.fixture(scope="module")
def positions(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A GPT-2 of 64 learned positions: a 65th would be an index past the end of a table."""
    return load(str(save(CONFIGS["gpt2"](), tmp_path_factory.mktemp("gpt2"))), device="cpu")


@pytest.mark.parametrize("length", [2, 63, 64, 65, 66, 127, 200])
@pytest.mark.parametrize("bos", ["auto", "always"])
def test_every_token_of_any_length_is_scored_once(mini: Any, length: int, bos: str) -> None:
    text = ("a b1" * length)[:length]
    sheet = losscore.score(mini, text, bos=bos)
    prefix = sheet.provenance["prefix_tokens"]
    assert len(sheet) == len(mini.encoder.encode(text).ids) + prefix
    assert np.isnan(sheet.columns["log_p"]).tolist() == [True] + [False] * (len(sheet) - 1)
    assert sheet.summary.scored == len(sheet) - 1


@pytest.mark.parametrize("length", [64, 65, 66, 200])
def test_learned_positions_never_run_out(positions: Model, length: int) -> None:
    text = ("a b1" * length)[:length]
    sheet = losscore.score(positions, text)
    assert len(sheet) == length
    assert sheet.summary.scored == length - 1
    assert sheet.provenance["windows"] == (1 if length <= 64 else 1 + -(-(length - 64) // 32))
    ids = sheet.columns["id"].tolist()
    with torch.no_grad():
        logits = positions.network(torch.tensor([ids[-64:-1]])).logits[0].double()
    last = float(torch.log_softmax(logits[-1], -1)[ids[-1]])
    assert sheet.columns["log_p"][-1] == pytest.approx(last, rel=1e-4)


def test_every_window_begins_with_the_bos_and_has_its_context() -> None:
    oracle = Oracle("AzBycxdweVFuGTHSIRJqkpKoLn", context=16, tokenizer=smol_like(bos=True))
    losscore.score(oracle, "AzBycxdweVFuGTHSIRJqkpKoLn", stride=5)
    bos = oracle.tokenizer.bos_token_id
    assert len(oracle.read) > 2
    assert all(ids[0] == bos and ids.count(bos) == 1 for ids in oracle.read)
    assert all(len(ids) <= 16 for ids in oracle.read)
    # Of the second window on, at least room - stride tokens stand before the first that is scored.
    assert all(len(ids) >= 16 - 5 for ids in oracle.read[1:])


@pytest.mark.parametrize("window", [2, 3, 9])
def test_a_seam_cuts_no_number_and_no_character(mini: Any, window: int) -> None:
    text = "is 1234567890.125 and 😀😀 192.168.0.1"
    whole, cut = losscore.score(mini, text), losscore.score(mini, text, window=window)
    for name in ("id", "bytes", "start", "end", "digit", "place", "place_weight"):
        assert np.array_equal(
            np.asarray(whole.columns[name]),
            np.asarray(cut.columns[name]),
            equal_nan=name in ("digit", "place", "place_weight"),
        ), name
    assert whole.cut_characters == cut.cut_characters


@pytest.mark.embedded
def test_a_million_characters_cost_no_more_model_than_was_asked_for(embedded: Any) -> None:
    text = "a" * 1_000_000
    sheet = losscore.score(embedded, text, limit=6)
    assert len(sheet) == 6
    assert sheet.provenance["tokens_left_out"] > 100_000
    assert text.startswith(sheet.text)


def test_a_cut_inside_a_character_keeps_the_bytes_of_each_token(mini: Any) -> None:
    sheet = losscore.score(mini, "a😀b", limit=3)
    assert sheet.columns["bytes"] == ["61", "f0", "9f"]
    assert sheet.columns["token"] == ["a", "⟨F0⟩", "⟨9F⟩"]
    assert sheet.provenance["tokens_left_out"] == 3
    assert "\ufffd" not in sheet.to_json()


def test_ids_and_lengths_are_refused_before_the_model_runs(positions: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def unrun(*_: Any, **__: Any) -> Any:
        raise AssertionError("the model was run")

    monkeypatch.setattr(type(positions.network), "forward", unrun)
    monkeypatch.setattr(type(positions.network.base_model), "forward", unrun)
    for ids in ([1] * 65, [0, 256], [-1]):
        with pytest.raises(ModelError):
            positions.blocks(ids)


def test_the_file_of_a_sheet_is_the_same_however_long_the_windows(tmp_path: Path, mini: Any) -> None:
    text = "cost 12.5 euros 😀, " * 5
    made = {window: losscore.score(mini, text, window=window) for window in (None, 16)}
    for window, sheet in made.items():
        provenance = sheet.provenance
        assert provenance["window"] == (window or mini.context)
        assert provenance["stride"] == provenance["window"] // 2
        assert provenance["tokens_scored"] == sheet.summary.scored == len(sheet) - 1
        sheet.save(tmp_path / f"{window}.csv")
    one, other = ((tmp_path / f"{window}.csv").read_text("utf-8").splitlines() for window in made)
    assert len(one) == len(other)
