"""Inputs that trainers get wrong: masks, padding, windows, parts of a step, dropout, modes, stops at any moment."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPTNeoXConfig, LlamaConfig, OPTConfig, Qwen2Config

import losscore
from losscore.errors import Cancelled, LosscoreError
from losscore.finetuning import FineTune, Settings, Snapshot, finetune
from losscore.finetuning.copies import training_copy
from losscore.finetuning.passage import read_passages
from losscore.finetuning.step import run_pass
from losscore.finetuning.trainee import Trainee
from losscore.models import Model
from losscore.objectives import CATALOGUE
from losscore.text.examples import Example
from tests.models.tiny import CONFIGS, SIZE, build, byte_tokenizer
from tests.tiny import characters, mini_model

TEXT = "They cost 2 * 13 = 26 euros."
# Of 2, 9 and 30 characters; the second ends in what fills up a shorter row.
THREE = ["ab", "aaaaaaa 1", "thirty characters, 12 + 3 = 15"]
SHAPE = {"vocab_size": SIZE, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
OTHERS = {
    "neox": lambda: GPTNeoXConfig(**SHAPE, intermediate_size=48, max_position_embeddings=64),
    "opt": lambda: OPTConfig(**SHAPE, ffn_dim=48, max_position_embeddings=64, word_embed_proj_dim=16),
    "qwen2": lambda: Qwen2Config(**SHAPE, intermediate_size=48, num_key_value_heads=2, max_position_embeddings=64),
}


def byte_model(config: Any) -> Model:
    """A tiny model of that architecture that reads bytes."""
    return Model(
        network=build(config),
        tokenizer=byte_tokenizer(),
        name="tiny",
        revision="",
        device=torch.device("cpu"),
        dtype=torch.float32,
        context=64,
        vocabulary=SIZE,
        streams=config.model_type != "opt",
    )


def bits(network: Any) -> list[bytes]:
    return [tensor.detach().numpy().tobytes() for tensor in [*network.parameters(), *network.buffers()]]


def log_p(sheet: Any) -> Any:
    return np.asarray(sheet.columns["log_p"])


def all_bits(snapshot: Snapshot) -> list[bytes]:
    return [log_p(snapshot.sheet(example)).tobytes() for example in range(snapshot.examples)]


# Masks and windows


def test_exactly_the_answer_is_trained_on_with_the_context_cut_from_the_left():
    model = mini_model(characters(), context=3)
    (passage,) = read_passages(model, [Example("pqr", "st")], "never")
    p, q, r, s, t = passage.encoding.ids
    seen = [
        ((*stretch.ids, 0)[: stretch.first + at + 1], int(stretch.targets.ids[at]))
        for stretch in passage.stretches
        for at in stretch.targets.trained.nonzero().flatten().tolist()
    ]
    assert [target for _, target in seen] == [s, t]
    for context, target in seen:
        assert context[-1] == {s: r, t: s}[target]
        assert (p, q, r, s)[: -1 if target == s else None][-len(context) :] == context
    logits = [model.network(torch.tensor([context])).logits[0, -1] for context, _ in seen]
    by_hand = [-torch.log_softmax(row, -1)[target].item() for row, (_, target) in zip(logits, seen, strict=True)]
    (snapshot,) = finetune(model, [("pqr", "st")], steps=0, bos="never")
    assert snapshot.nll == pytest.approx(math.fsum(by_hand) / 2, rel=1e-5)


def test_an_answer_behind_a_prompt_longer_than_the_context_is_trained_on_in_full():
    model = mini_model()
    prompt, answer = "words and 12 more " * 40, " 7 or 26."
    (passage,) = read_passages(model, [Example(prompt, answer)], "auto")
    ids = list(passage.encoding.ids)
    assert len(ids) > 3 * model.context
    wanted = [ids[row] for row in range(len(ids)) if passage.encoding.is_target[row]]
    assert passage.targets.ids[passage.targets.trained].tolist() == wanted
    assert len(wanted) > 4
    for stretch in passage.stretches:
        trained = stretch.targets.trained.nonzero().flatten().tolist()
        assert all(stretch.first + at + 1 >= model.context // 2 for at in trained)
    first, *_, last = finetune(model, [(prompt, answer)], steps=3, lr=1e-2)
    assert last.nll < first.nll


def test_examples_without_a_target_are_left_out_counted_and_told():
    model = mini_model()
    tuning = FineTune(model, [TEXT, ("A prompt alone", ""), "x", "9 or 12"], steps=0)
    assert tuning.notes == ("2 of 4 examples have no token to train on: they are left out.",)
    (snapshot,) = tuning
    assert snapshot.examples == 2
    assert snapshot.provenance["examples"] == 2
    assert snapshot.provenance["examples_left_out"] == 2
    assert tuning.notes[0] in snapshot.sheet().provenance["notes"]
    assert FineTune(model, [TEXT, "x"]).notes == ("1 of 2 examples has no token to train on: it is left out.",)
    assert FineTune(model, TEXT).notes == ()


# Parts of a step, padding


class Table:
    """A network that is one table: the logits after each id. What `run_pass` asks of a trainee."""

    device = torch.device("cpu")
    embedding = weight = None

    def __init__(self, size: int) -> None:
        self.logits = torch.zeros(size, size, requires_grad=True)

    def body(self, ids: torch.Tensor) -> torch.Tensor:
        return self.logits[ids]

    def head(self, rows: torch.Tensor) -> torch.Tensor:
        return rows


@pytest.mark.parametrize("parts", [1, 2])
def test_one_token_of_1_nat_and_three_of_2_nats_cost_7_over_4(parts):
    model = mini_model(characters())
    passages = read_passages(model, [Example("", "ab"), Example("", "cdef")], "never")
    table = Table(model.vocabulary)
    pairs = [(pair, nats) for passage, nats in zip(passages, (1, 2), strict=True) for pair in pairwise(passage, nats)]
    with torch.no_grad():
        for (here, target), nats in pairs:
            q = math.exp(-nats)
            table.logits[here, target] = math.log((model.vocabulary - 1) * q / (1 - q))
    done = run_pass(CATALOGUE["nll"], table, passages, vocabulary=model.vocabulary, digit_ids=(), parts=parts)  # type: ignore[arg-type]
    assert done.loss == pytest.approx(7 / 4, rel=1e-6)
    expected = torch.zeros_like(table.logits)
    for (here, target), _ in pairs:
        expected[here] = torch.softmax(table.logits[here].detach(), -1) / 4
        expected[here, target] -= 1 / 4
    torch.testing.assert_close(table.logits.grad, expected, rtol=1e-5, atol=1e-8)


def pairwise(passage: Any, nats: int) -> list[tuple[int, int]]:
    return list(zip(passage.encoding.ids, passage.encoding.ids[1:], strict=False))


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_loss_and_gradient_norm_are_those_of_a_loop_over_the_texts(parts):
    model = byte_model(CONFIGS["gpt2"]())
    (first, _) = finetune(model, THREE, method="full", steps=1, lr=1e-3, accumulation=parts)
    network = copy.deepcopy(model.network)
    total, count = torch.zeros(()), 0
    for text in THREE:
        ids = model.encoder.encode(text).ids
        assert len(ids) == len(text)
        rows = torch.log_softmax(network(torch.tensor([ids])).logits[0], -1)
        total = total - sum(rows[t, ids[t + 1]] for t in range(len(ids) - 1))
        count += len(ids) - 1
    (total / count).backward()
    norm = torch.sqrt(sum(p.grad.double().pow(2).sum() for p in network.parameters() if p.grad is not None))
    assert count == 1 + 8 + 29
    assert first.provenance["targets"] == count
    assert first.loss == pytest.approx(total.item() / count, rel=1e-5)
    assert first.gradient_norm == pytest.approx(norm.item(), rel=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "mamba", *OTHERS])
def test_a_text_in_a_padded_batch_reads_as_it_does_alone_in_every_architecture(name):
    model = byte_model((CONFIGS | OTHERS)[name]())
    (together,) = finetune(model, THREE, steps=0)
    for example, text in enumerate(THREE):
        np.testing.assert_allclose(log_p(together.sheet(example)), log_p(losscore.score(model, text)), atol=2e-5)
    alone = [next(finetune(model, text, steps=0)) for text in THREE]
    summed = sum(one.nll * one.provenance["targets"] for one in alone)
    assert together.nll * together.provenance["targets"] == pytest.approx(summed, rel=1e-5)


@pytest.mark.parametrize("batch", [1, 2])
def test_what_is_watched_does_not_depend_on_the_batch(batch):
    model = mini_model()
    (whole,) = finetune(model, THREE, steps=0, objective="talr")
    (some,) = finetune(model, THREE, steps=0, objective="talr", batch=batch, accumulation=2)
    assert (some.loss, some.nll) == pytest.approx((whole.loss, whole.nll), rel=1e-5)


@pytest.mark.parametrize("options", [{"autocast": True}, {"batch": 2}, {"accumulation": 2}])
def test_before_and_after_are_run_in_the_same_shape(options):
    first, *_, last = finetune(mini_model(), THREE, lr=0.0, steps=3, **options)
    assert all_bits(first) == all_bits(last)
    assert first.loss == last.loss


# The objective, the wrapping, the architecture


def test_every_objective_runs_and_a_wrapped_model_costs_what_the_plain_one_does():
    model = mini_model()
    ids = torch.tensor([model.encoder.encode(TEXT).ids])
    places = torch.tensor([[torch.nan if d is None else float(d.place) for d in model.encoder.encode(TEXT).digits]])
    passages = read_passages(model, [Example("", TEXT)], "auto")
    digit_ids = model.encoder.vocabulary.digit_ids
    wrapped = training_copy(model, Settings())
    assert wrapped.adapter is not None
    with torch.no_grad():
        logits = wrapped.adapter(input_ids=ids).logits
    unit = model.network.get_output_embeddings().weight.detach()
    losses = {}
    for name, objective in CATALOGUE.items():
        costs = [
            run_pass(objective, Trainee(network, True), passages, vocabulary=model.vocabulary, digit_ids=digit_ids).loss
            for network in (wrapped.network, model.network)
        ]
        assert costs[0] == costs[1]
        expected = objective(logits, ids, digit_ids=digit_ids, places=places, embedding=unit).item()
        assert costs[0] == pytest.approx(expected, rel=1e-5), name
        losses[name] = costs[0]
    # EMO's two halves are weighed so that its value is NLL's; its gradient is another (test_step).
    assert losses.pop("emo") == pytest.approx(losses["nll"], rel=1e-6)
    assert len({round(loss, 5) for loss in losses.values()}) == len(losses)
    model.network.zero_grad()


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("method", ["lora", "full"])
def test_other_architectures_learn_and_leave_the_shared_model_alone(name, method):
    model = byte_model(OTHERS[name]())
    before = bits(model.network)
    tuning = FineTune(model, TEXT, method=method, steps=3, lr=1e-2 if method == "lora" else 2e-3)
    assert tuning.trainable > 0
    first, *_, last = tuning
    assert last.nll < first.nll - 0.2
    assert bits(model.network) == before


def test_a_model_without_linear_layers_gets_a_sentence():
    nothing = byte_model(LlamaConfig(**SHAPE | {"num_hidden_layers": 0}, intermediate_size=48))
    with pytest.raises(LosscoreError, match="no linear layer"):
        FineTune(nothing, TEXT)
    first, *_, last = finetune(nothing, TEXT, method="full", lr=1e-2, steps=2)
    assert last.nll < first.nll


# Modes


def test_dropout_is_off_in_every_snapshot_and_afterwards():
    config = CONFIGS["gpt2"]()
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.5
    model = byte_model(config)
    expected = log_p(losscore.score(model, TEXT))
    tuning = FineTune(model, TEXT, lr=0.0, steps=2)
    for snapshot in tuning:
        np.testing.assert_allclose(log_p(snapshot.sheet()), expected, atol=2e-5)
    tuned = tuning.tuned("tuned")
    assert log_p(losscore.score(tuned, TEXT)).tobytes() == log_p(losscore.score(tuned, TEXT)).tobytes()
    assert not any(module.training for network in (tuned.network, model.network) for module in network.modules())


@pytest.mark.parametrize("method", ["lora", "full"])
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_it_learns_whatever_mode_the_caller_is_in(method, mode):
    options: dict[str, Any] = {"method": method, "steps": 2, "lr": 1e-2, "probes": ["Some words."]}
    expected = [all_bits(snapshot) for snapshot in finetune(mini_model(), TEXT, **options)]
    with mode():
        model = mini_model()
        tuning = FineTune(model, TEXT, **options)
        assert [all_bits(snapshot) for snapshot in tuning] == expected
        within = FineTune(model, TEXT, **options)
    assert [all_bits(snapshot) for snapshot in within] == expected
    assert expected[0] != expected[-1]


# Its end, and the next one


def test_stopped_at_any_moment_it_ends_there_and_the_next_run_starts_from_the_base():
    model = mini_model()
    before = bits(model.network)
    options: dict[str, Any] = {"steps": 2, "lr": 1e-2, "probes": ["Some words."], "probe_every": 1, "accumulation": 2}
    expected = [all_bits(snapshot) for snapshot in finetune(model, THREE, **options)]

    def stopped(after: int) -> int:
        asked = []

        def stop() -> bool:
            asked.append(True)
            return len(asked) > after

        tuning, seen = None, []
        try:
            tuning = FineTune(model, THREE, stop=stop, **options)
            seen.extend(tuning)
        except Cancelled:
            # Once told to, it asks no second time.
            assert len(asked) == after + 1
        if tuning and seen:
            # The weights are those of the last snapshot, also where the next update had been made.
            tuned = log_p(losscore.score(tuning.tuned("tuned"), THREE[2]))
            np.testing.assert_allclose(tuned, log_p(seen[-1].sheet(2)), atol=2e-5)
            assert tuning._copy is not None
            assert len(seen) == 1 or all(parameter.grad is None for parameter in tuning._copy.trained)
        return len(asked)

    questions = stopped(10_000)
    # Examples, the probe, the copy; then the parts of three snapshots, the probe after each update, and the updates.
    assert questions == 3 + 1 + 1 + 3 * 2 + 2 + 2
    for after in range(questions):
        assert stopped(after) == after + 1
    assert bits(model.network) == before
    assert [all_bits(snapshot) for snapshot in finetune(model, THREE, **options)] == expected


def test_a_fine_tune_is_run_once():
    tuning = FineTune(mini_model(), TEXT, steps=1)
    list(tuning)
    with pytest.raises(LosscoreError, match="start a new one"):
        list(tuning)
    closed = FineTune(mini_model(), TEXT, steps=1)
    closed.close()
    with pytest.raises(LosscoreError, match="closed"):
        list(closed)
