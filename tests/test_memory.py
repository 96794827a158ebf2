"""An edit reuses what the text before left behind, and the result is that of a fresh score."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from losscore.errors import Cancelled
from losscore.memory import Memory
from losscore.models import Model
from losscore.scoring import score
from tests.models.tiny import CONFIGS, build, byte_tokenizer
from tests.tiny import llama2_like, mini_model

EDITS = [
    "They cost 2 * 13",
    "They cost 2 * 13 = 26 euros.",
    "They cost 2 * 13 = 27 euros.",
    "They cost 2 * 13 = 27 euros, not 26.",
    "They cost 2",
    "They cost 2",
    "Something else entirely",
    "",
    "They cost 2 * 13 = 26 euros.",
    "x",
    "They",
]


def assert_fresh(model: Model, memory: Memory, text: str, **options: Any) -> None:
    again, fresh = score(model, text, memory=memory, **options), score(model, text, **options)
    for name, values in fresh.columns.items():
        if np.asarray(values).dtype.kind == "f":
            np.testing.assert_allclose(again.columns[name], values, rtol=2e-5, atol=2e-6, err_msg=f"{name} {text!r}")
        else:
            assert list(again.columns[name]) == list(values)
    assert again.top_tokens == fresh.top_tokens


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ids each run of the network got."""
    lengths: list[int] = []
    from losscore.models import model as module

    run = module.run

    def count(network: Any, window: torch.Tensor, **options: Any) -> Any:
        lengths.append(window.shape[1])
        return run(network, window, **options)

    monkeypatch.setattr(module, "run", count)
    return lengths


@pytest.mark.parametrize("tokenizer", [None, "with BOS"])
def test_edit_after_edit_it_equals_a_fresh_score(tokenizer):
    model = mini_model(llama2_like() if tokenizer else None)
    memory = Memory()
    for text in EDITS:
        assert_fresh(model, memory, text)


def test_an_edit_at_the_end_runs_only_the_end(ran):
    model, memory = mini_model(), Memory()
    score(model, "They cost 2 * 13 = 26 euros", memory=memory)
    whole = ran[-1]
    ran.clear()
    score(model, "They cost 2 * 13 = 26 euros!", memory=memory)
    assert sum(ran) <= 2 < whole
    ran.clear()
    score(model, "Xhey cost 2 * 13 = 26 euros!", memory=memory)
    assert sum(ran) > whole


def test_a_prompt_that_stays_is_not_run_again(ran):
    model, memory = mini_model(), Memory()
    score(model, "26", "They cost 2 * 13 = ", memory=memory)
    ran.clear()
    sheet = score(model, "27", "They cost 2 * 13 = ", memory=memory)
    assert sum(ran) <= 2
    assert sum(sheet.columns["is_target"]) == 2


def test_a_score_that_was_stopped_is_not_trusted(ran):
    model, memory = mini_model(), Memory()
    score(model, EDITS[1], memory=memory)
    with pytest.raises(Cancelled):
        score(model, EDITS[2], memory=memory, stop=lambda: True)
    for text in EDITS[2:5]:
        assert_fresh(model, memory, text)


def test_another_model_or_a_text_too_long_to_keep_starts_anew():
    one, other, memory = mini_model(), mini_model(seed=1), Memory(room=12)
    for model in (one, other, one):
        for text in (*EDITS[:3], "a longer text of many more words " * 2, EDITS[0]):
            assert_fresh(model, memory, text)
    long = " ".join(map(str, range(80)))
    memory = Memory()
    assert_fresh(one, memory, long)
    assert_fresh(one, memory, long + " and 7")
    assert_fresh(one, memory, EDITS[0])


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "mamba", "cohere"])
def test_every_kind_of_cache_or_none(name):
    network = build(CONFIGS[name]())
    model = replace(mini_model(byte_tokenizer()), network=network, vocabulary=256)
    memory = Memory()
    for text in EDITS:
        assert_fresh(model, memory, text)
    whole = replace(model, caches=False)
    for text in EDITS[:3]:
        assert_fresh(whole, memory, text)
