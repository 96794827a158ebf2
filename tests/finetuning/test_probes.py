"""Forgetting: KL and NLL change on texts that were not trained on, by a slow loop in plain floats."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from losscore.finetuning import FineTune, shipped_probes
from tests.tiny import mini_model

PROBES = ["Some words and 12.", "people near the river"]


def log_p(network: Any, ids: list[int]) -> list[list[float]]:
    with torch.no_grad():
        rows = network(torch.tensor([ids])).logits[0].double().tolist()
    return [[v - math.log(math.fsum(math.exp(w) for w in row)) for v in row] for row in rows]


@pytest.mark.parametrize("method", ["lora", "full"])
def test_kl_and_change_of_nll_by_hand(method):
    model = mini_model()
    tuning = FineTune(model, "They cost 26 euros.", method=method, lr=1e-2, steps=3, probe_every=2, probes=PROBES)
    seen = list(tuning)
    tuned = tuning.tuned("tuned")
    assert [len(snapshot.probes) for snapshot in seen] == [0, 0, 2, 2]
    for text, probe in zip(PROBES, seen[-1].probes, strict=True):
        ids = list(model.encoder.encode(text).ids)
        before, after = log_p(model.network, ids), log_p(tuned.network, ids)
        count = len(ids) - 1
        kl = [
            math.fsum(math.exp(b) * (b - a) for b, a in zip(*rows, strict=True))
            for rows in zip(before, after, strict=True)
        ]
        nll = -math.fsum(after[t][ids[t + 1]] for t in range(count)) / count
        base = -math.fsum(before[t][ids[t + 1]] for t in range(count)) / count
        assert probe.text == text
        assert probe.tokens == count
        assert probe.kl == pytest.approx(math.fsum(kl[:-1]) / count, rel=1e-4)
        assert probe.kl > 1e-4
        assert probe.nll == pytest.approx(nll, rel=1e-5)
        assert probe.nll_change == pytest.approx(nll - base, abs=1e-5)


@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_model_that_did_not_move_has_moved_by_exactly_nothing(method):
    # Of different lengths: what fills up the shorter ones is no reason for a difference either.
    snapshots = list(FineTune(mini_model(), "26 euros", method=method, lr=0.0, steps=1, probes=[*PROBES, "a b"]))
    assert [(probe.kl, probe.nll_change) for probe in snapshots[-1].probes] == [(0.0, 0.0)] * 3


def test_a_probe_longer_than_the_context_is_read_as_far_as_it_goes():
    model = mini_model()
    (snapshot,) = FineTune(model, "26 euros", steps=0, probes=["words " * 100])
    assert snapshot.probes[0].tokens == model.context - 1


def test_a_token_that_the_base_rules_out_adds_nothing():
    model = mini_model()
    head = model.network.lm_head
    ids = model.encoder.encode(PROBES[0]).ids
    with torch.no_grad():
        model.network.lm_head = torch.nn.Linear(32, model.vocabulary)
        model.network.lm_head.weight.copy_(head.weight)
        model.network.lm_head.bias.zero_()
        (ruled_out,) = [next(i for i in range(model.vocabulary) if i not in ids)]
        model.network.lm_head.bias[ruled_out] = -torch.inf
    *_, last = FineTune(model, "They cost 26 euros.", lr=1e-2, steps=2, probes=PROBES[:1])
    assert 0 < last.probes[0].kl < math.inf


def test_the_shipped_ones_are_short_and_of_several_kinds():
    texts = shipped_probes()
    assert len(texts) >= 4
    assert all(20 < len(text) < 300 for text in texts)
