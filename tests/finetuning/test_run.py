"""A fine-tune as a whole: what it promises of the shared model, of its snapshots, of its end."""

from __future__ import annotations

import gc
import weakref
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import LlamaForCausalLM

import losscore
from losscore.errors import Cancelled, LosscoreError, ModelError, TextError
from losscore.finetuning import FineTune, Settings, Snapshot, finetune, run, step
from losscore.finetuning.copies import training_copy
from losscore.text.examples import Example, as_examples
from tests.models.tiny import CONFIGS, build
from tests.tiny import mini_model

TEXT = "They cost 2 * 13 = 26 euros."
PAIRS = [("Q: 2 pens? ", TEXT), ("", "9 or 12"), "words alone", "x"]
FAST = {"lr": 1e-2, "steps": 3}


@pytest.fixture(scope="module")
def model() -> Any:
    return mini_model()


def fingerprint(network: nn.Module) -> dict[str, tuple[bytes, bool]]:
    return {
        name: (tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes(), tensor.requires_grad)
        for name, tensor in [*network.named_parameters(), *network.named_buffers()]
    }


def columns(snapshot: Snapshot, example: int = 0) -> dict[str, np.ndarray]:
    return {
        name: np.asarray(values)
        for name, values in snapshot.sheet(example).columns.items()
        if np.asarray(values).dtype.kind == "f"
    }


def assert_bitwise(a: Snapshot, b: Snapshot) -> None:
    one, other = columns(a), columns(b)
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize("method", ["lora", "full"])
@pytest.mark.parametrize("objective", ["nll", "deft", "talr", "del_loss", "overtone"])
def test_the_text_is_learned_and_the_shared_model_is_not_touched(model, method, objective):
    before = fingerprint(model.network)
    modules = [name for name, _ in model.network.named_modules()]
    seen = list(finetune(model, PAIRS, objective=objective, method=method, probes=["Some words."], **FAST))
    assert [snapshot.step for snapshot in seen] == [0, 1, 2, 3]
    assert all(later.nll < earlier.nll for earlier, later in pairwise(seen))
    assert seen[-1].p > seen[0].p
    assert fingerprint(model.network) == before
    assert [name for name, _ in model.network.named_modules()] == modules


def test_the_first_snapshot_is_the_model_as_it_was(model):
    (snapshot,) = finetune(model, PAIRS, steps=0)
    for example, (prompt, text) in enumerate([PAIRS[0], ("", PAIRS[1][1]), ("", PAIRS[2])]):
        sheet = losscore.score(model, text, prompt)
        own = snapshot.sheet(example)
        assert own.text == sheet.text
        assert list(own.columns["is_target"]) == list(sheet.columns["is_target"])
        for name, values in columns(snapshot, example).items():
            np.testing.assert_allclose(values, sheet.columns[name], rtol=2e-5, atol=2e-6, err_msg=name)
        assert own.provenance["fine_tune"]["step"] == 0
        assert own.provenance["prompt_characters"] == len(prompt)
    assert snapshot.examples == 3  # "x" has no target
    target = [losscore.score(model, text, prompt) for prompt, text in (PAIRS[0], PAIRS[1], ("", PAIRS[2]))]

    def over_targets(column: str) -> Any:
        return np.concatenate([np.asarray(s.columns[column])[np.asarray(s.columns["is_target"])] for s in target])

    log_p = over_targets("log_p")
    assert snapshot.entropy == pytest.approx(over_targets("entropy").mean(), rel=1e-5)
    # The prompt's digit counts for nothing.
    assert snapshot.digit_entropy == pytest.approx(np.nanmean(over_targets("digit_entropy")), rel=1e-5)
    assert snapshot.nll == pytest.approx(-log_p.mean(), rel=1e-5)
    assert snapshot.p == pytest.approx(np.exp(log_p).mean(), rel=1e-5)
    assert snapshot.loss == pytest.approx(snapshot.nll, rel=1e-6)
    assert snapshot.gradient_norm is None


@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_learning_rate_of_0_changes_no_bit(model, method):
    first, *_, last = finetune(model, PAIRS, lr=0.0, steps=3, method=method, probes=["Some words."])
    assert first.step == 0
    assert last.step == 3
    assert_bitwise(first, last)
    assert last.loss == first.loss
    assert [probe.kl for probe in last.probes] == [0.0]
    assert [probe.nll_change for probe in last.probes] == [0.0]


def test_the_tuned_model_of_0_steps_scores_bit_for_bit_like_its_base(model):
    tuning = FineTune(model, TEXT, steps=0)
    list(tuning)
    tuned, base = losscore.score(tuning.tuned("tuned"), TEXT), losscore.score(model, TEXT)
    for name in ("log_p", "entropy", "expected_rank", "del_penalty"):
        np.testing.assert_array_equal(tuned.columns[name], base.columns[name])
    assert tuned.provenance["model"] == "tuned"
    assert "mini" in tuned.provenance["revision"]


def test_the_tuned_model_is_what_the_last_snapshot_saw_and_outlives_the_run(model):
    tuning = FineTune(model, TEXT, **FAST)
    *_, last = tuning
    tuned = tuning.tuned("tuned")
    tuning.close()
    sheet = losscore.score(tuned, TEXT)
    np.testing.assert_allclose(sheet.columns["log_p"], last.sheet().columns["log_p"], rtol=1e-5, atol=1e-6)
    with pytest.raises(ModelError, match="fine-tuned already"):
        FineTune(tuned, TEXT)
    with pytest.raises(LosscoreError, match="closed"):
        tuning.tuned("again")


@pytest.mark.parametrize("method", ["lora", "full"])
def test_one_seed_one_result_whatever_else_draws_random_numbers(model, method):
    torch.manual_seed(1)
    state = torch.get_rng_state()
    *_, one = finetune(model, PAIRS, method=method, batch=2, **FAST)
    torch.manual_seed(2)
    *_, same = finetune(model, PAIRS, method=method, batch=2, **FAST)
    *_, other = finetune(model, PAIRS, method=method, batch=2, seed=1, **FAST)
    assert_bitwise(one, same)
    assert other.nll != one.nll
    assert len(state) == len(torch.get_rng_state())


def test_accumulation_gives_the_same_run(model):
    whole = [s.nll for s in finetune(model, PAIRS, objective="talr", **FAST)]
    for parts in (2, 3):
        again = [s.nll for s in finetune(model, PAIRS, objective="talr", accumulation=parts, **FAST)]
        assert again == pytest.approx(whole, rel=2e-5)


def test_adamw_with_clipping_and_warm_up_written_out(model):
    """Two steps by hand: AdamW's equations (arXiv 1711.05101, Algorithm 2, no decay) on autograd's gradients."""
    settings = Settings(method="full", lr=1e-2, steps=2, warmup=2, clip=0.5)
    tuning = FineTune(model, TEXT, settings=settings)
    seen = list(tuning)
    network = training_copy(model, settings).network
    parameters = [p for p in network.parameters() if p.requires_grad]
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
    ids = torch.tensor([model.encoder.encode(TEXT).ids])
    for t in (1, 2):
        for parameter in parameters:
            parameter.grad = None
        loss = network(ids, labels=ids).loss
        assert seen[t - 1].nll == pytest.approx(loss.item(), rel=1e-5)
        loss.backward()
        norm = torch.sqrt(sum(p.grad.double().pow(2).sum() for p in parameters)).item()
        assert seen[t - 1].gradient_norm == pytest.approx(norm, rel=1e-4)
        with torch.no_grad():
            for parameter, (m, v) in zip(parameters, moments, strict=True):
                gradient = parameter.grad * min(1.0, 0.5 / norm)
                m.mul_(0.9).add_(0.1 * gradient)
                v.mul_(0.999).add_(0.001 * gradient**2)
                change = (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
                parameter -= 1e-2 * min(1.0, t / 2) * change
    assert seen[2].nll == pytest.approx(network(ids, labels=ids).loss.item(), rel=1e-4)


def test_a_batch_of_some_examples_still_watches_the_same_ones(model):
    seen = list(finetune(model, PAIRS, batch=1, **FAST))
    texts = [[snapshot.sheet(i).text for i in range(snapshot.examples)] for snapshot in seen]
    assert all(one == texts[0] for one in texts)
    assert len(texts[0]) == 3


def test_stopped_within_a_step_everything_seen_stays(model):
    before, asked = fingerprint(model.network), []

    def stop() -> bool:
        asked.append(True)
        return len(asked) > 7

    tuning = FineTune(model, PAIRS, stop=stop, accumulation=3, lr=1e-2)
    asked.clear()
    seen = []
    with pytest.raises(Cancelled):
        seen.extend(tuning)
    assert 1 < len(seen) < 4
    # The weights are those of the last snapshot, although the next update had been made.
    tuned = losscore.score(tuning.tuned("tuned"), TEXT, PAIRS[0][0])
    np.testing.assert_allclose(tuned.columns["log_p"], seen[-1].sheet().columns["log_p"], rtol=1e-5, atol=1e-6)
    assert fingerprint(model.network) == before


def test_a_learning_rate_that_breaks_the_model_ends_with_a_sentence(model, monkeypatch):
    before, seen = fingerprint(model.network), []
    spoiled = run.run_pass

    def spoil(*args: Any, **options: Any) -> Any:
        done = spoiled(*args, **options)
        if len(seen) == 2:
            object.__setattr__(done, "loss", float("nan"))
        return done

    monkeypatch.setattr(run, "run_pass", spoil)
    with pytest.raises(LosscoreError, match="smaller learning rate") as caught:
        seen.extend(FineTune(model, TEXT, **FAST))
    assert "step 2" in str(caught.value)
    assert [snapshot.step for snapshot in seen] == [0, 1]
    assert fingerprint(model.network) == before


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "memory of cpu is full"),
        (MemoryError(), "memory of cpu is full"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "memory of cpu is full"),
    ],
)
def test_full_memory_ends_with_a_sentence(model, monkeypatch, error, words):
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(step, "fused", fail)
    with pytest.raises(LosscoreError, match=words):
        next(iter(FineTune(model, TEXT)))


def test_a_lost_device_ends_with_a_sentence(model, monkeypatch):
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(step, "fused", fail)
    tuning = FineTune(model, TEXT)
    monkeypatch.setattr(FineTune, "device", torch.device("cuda"))
    with pytest.raises(LosscoreError, match="start losscore again"):
        next(iter(tuning))


def test_closing_frees_the_copy(model):
    tuning = FineTune(model, TEXT, method="full", steps=50)
    network = weakref.ref(tuning._copy.network)
    walk = iter(tuning)
    kept = next(walk)
    walk.close()
    tuning.close()
    del tuning, walk
    gc.collect()
    assert network() is None
    assert kept.sheet().summary.scored
    generator = finetune(model, TEXT, method="full")
    next(generator)
    generator.close()
    with pytest.raises(StopIteration):
        next(generator)


@pytest.mark.parametrize("name", ["gpt2", "llama-tied", "gemma2", "granite", "cohere", "mamba"])
def test_lora_finds_the_linear_layers_of_every_architecture_but_not_the_head(name):
    network = build(CONFIGS[name]())
    model = mini_model()
    model = type(model)(**{**vars_of(model), "network": network, "vocabulary": 256})
    before = fingerprint(network)
    copy = training_copy(model, Settings())
    assert sum(parameter.numel() for parameter in copy.trained) > 0
    adapted = [n for n, module in copy.network.named_modules() if hasattr(module, "lora_A")]
    assert len(adapted) >= 4
    assert not hasattr(copy.network.get_output_embeddings(), "lora_A")
    ids = torch.tensor([[5, 9, 200, 31, 7]])
    with torch.no_grad():
        # Mamba's reference scan does not repeat itself to the last bit either.
        slack = 1e-6 if name == "mamba" else 0.0
        torch.testing.assert_close(copy.network(ids).logits, network(ids).logits, rtol=slack, atol=slack)
    # The frozen weights are the very same memory, tied ones once.
    shared = {parameter.data_ptr() for parameter in network.parameters()}
    frozen = [parameter for parameter in copy.network.parameters() if not parameter.requires_grad]
    assert {parameter.data_ptr() for parameter in frozen} == shared
    assert len(frozen) == len(list(network.parameters()))
    assert fingerprint(network) == before


def vars_of(model: Any) -> dict[str, Any]:
    return {name: getattr(model, name) for name in model.__dataclass_fields__}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_half_precision_checkpoint_trains_in_float32(method, dtype):
    model = mini_model()
    half = type(model)(**{**vars_of(model), "network": model.network.to(dtype), "dtype": dtype})
    before = fingerprint(half.network)
    tuning = FineTune(half, TEXT, method=method, lr=1e-5, steps=2)
    weights = [parameter.detach().clone() for parameter in tuning._copy.trained]
    held = [*tuning._copy.network.parameters(), *tuning._copy.network.buffers()]
    assert {tensor.dtype for tensor in held} == {torch.float32}
    assert tuning.tuned("tuned").dtype == torch.float32
    first, _, last = tuning
    moved = [bool((now != then).any()) for now, then in zip(tuning._copy.trained, weights, strict=True)]
    assert np.mean(moved) > 0.5
    assert last.nll != first.nll
    assert first.sheet().provenance["dtype"] == "float32"
    assert fingerprint(half.network) == before


def test_a_model_made_under_inference_mode_can_be_trained():
    with torch.inference_mode():
        model = mini_model()
    losscore.score(model, TEXT)
    *_, last = finetune(model, TEXT, method="full", **FAST)
    assert np.isfinite(last.nll)


def test_bfloat16_autocast_learns_too(model):
    first, *_, last = finetune(model, TEXT, autocast=True, **FAST)
    exact, *_ = finetune(model, TEXT, steps=0)
    assert last.nll < first.nll
    assert first.nll == pytest.approx(exact.nll, rel=0.05)
    assert first.nll != exact.nll


def test_half_of_a_character_before_the_response_counts_once(model):
    (snapshot,) = finetune(model, [("\ud83d\ude00 ", TEXT)], steps=0)
    assert snapshot.sheet().provenance["prompt_characters"] == 2
    assert snapshot.sheet().text == "😀 " + TEXT


def test_the_adapter_weighs_twice_whatever_its_rank(model):
    for rank in (2, 8):
        copy = training_copy(model, Settings(rank=rank))
        layers = [module for module in copy.network.modules() if hasattr(module, "lora_A")]
        assert {(layer.r["default"], layer.scaling["default"]) for layer in layers} == {(rank, 2.0)}


def test_a_model_whose_logits_must_be_taken_whole_trains_alike(model):
    whole = type(model)(**{**vars_of(model), "streams": False})
    streamed = [s.nll for s in finetune(model, PAIRS, **FAST)]
    assert [s.nll for s in finetune(whole, PAIRS, **FAST)] == pytest.approx(streamed, rel=1e-4)


def test_logits_that_are_more_than_the_head_of_a_hidden_state_are_the_models_own():
    class Doubled(LlamaForCausalLM):
        def forward(self, *given: Any, **options: Any) -> Any:
            out = super().forward(*given, **options)
            out.logits = out.logits * 2
            return out

    model = mini_model()
    streamed = losscore.score(model, TEXT)
    model.network.__class__ = Doubled
    whole = type(model)(**{**vars_of(model), "streams": False})
    first, *_, last = finetune(whole, TEXT, **FAST)
    own = np.asarray(first.sheet().columns["log_p"])
    np.testing.assert_allclose(own, losscore.score(whole, TEXT).columns["log_p"], rtol=2e-5)
    assert np.nanmax(np.abs(own - np.asarray(streamed.columns["log_p"]))) > 0.1
    assert last.nll < first.nll


@pytest.mark.parametrize("batch", [None, 2])
def test_of_many_examples_the_first_eight_are_watched(model, batch):
    texts = [f"{number} words" for number in range(10)]
    (snapshot,) = finetune(model, texts, steps=0, batch=batch)
    assert [snapshot.sheet(example).text for example in range(snapshot.examples)] == texts[:8]
    # All are trained on in one pass: the means are over all. Of a batch they are over what is watched.
    seen = [next(finetune(model, text, steps=0)) for text in (texts if batch is None else texts[:8])]
    counts = [one.provenance["targets"] for one in seen]
    assert snapshot.nll == pytest.approx(np.average([one.nll for one in seen], weights=counts), rel=1e-5)
    assert snapshot.provenance["examples"] == 10


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": -1}, "number of steps"),
        ({"steps": 1.5}, "number of steps"),
        ({"steps": 10**9}, "number of steps"),
        ({"lr": -1.0}, "learning rate"),
        ({"lr": float("nan")}, "learning rate"),
        ({"method": "dora"}, "lora or full"),
        ({"rank": 0}, "rank"),
        ({"accumulation": 0}, "parts"),
        ({"batch": 0}, "examples a step"),
        ({"clip": -1.0}, "gradient norm"),
        ({"clip": "1"}, "gradient norm"),
        ({"lr": "0.1"}, "learning rate"),
        ({"autocast": "no"}, "Autocast"),
        ({"bos": "perhaps"}, "BOS policy"),
        ({"objective": None}, "must be a name"),
        ({"color": 1}, "color"),
        ({"objective": "focal"}, "focal"),
    ],
)
def test_settings_out_of_range_get_a_sentence_before_anything_runs(model, changes, words):
    with pytest.raises(LosscoreError, match=words):
        finetune(model, TEXT, **changes)


@pytest.mark.parametrize("examples", ["", "a", [("A prompt alone", "")], []])
def test_nothing_to_train_on_is_said(model, examples):
    with pytest.raises(TextError, match="nothing to train on"):
        finetune(model, examples)


def test_something_that_is_no_example_is_said(model):
    with pytest.raises(TextError, match="Example 2"):
        finetune(model, ["one text", 7])
    with pytest.raises(TextError, match="Example 1"):
        finetune(model, [("a", "b", "c")])
    with pytest.raises(TextError, match="two tokens"):
        finetune(model, TEXT, probes=[""])
    with pytest.raises(TextError, match="not int"):
        finetune(model, TEXT, probes=[7])
    with pytest.raises(TextError, match="not NoneType"):
        finetune(model, None)


def test_one_probe_may_stand_alone(model):
    (snapshot,) = finetune(model, TEXT, steps=0, probes="Some words.")
    assert [probe.text for probe in snapshot.probes] == ["Some words."]


@pytest.mark.parametrize(
    "given",
    [
        ("Q: 2? ", "26"),
        {"prompt": "Q: 2? ", "response": "26"},
        {"response": "26"},
        {"text": "26"},
        "26",
    ],
)
def test_an_example_is_a_text_a_pair_or_a_dict_with_its_names(given):
    expected = Example("Q: 2? " if "Q: 2? " in str(given) else "", "26")
    assert as_examples([given, "x"]) == [expected, Example("", "x")]
    if not isinstance(given, tuple):
        assert as_examples(given) == [expected]
    assert as_examples(expected) == [expected]


def test_dicts_are_learned_from_like_pairs(model):
    pairs = [s.nll for s in finetune(model, [("Q: 2? ", "26"), ("", TEXT)], **FAST)]
    dicts = [{"prompt": "Q: 2? ", "response": "26"}, {"text": TEXT}]
    assert [s.nll for s in finetune(model, dicts, **FAST)] == pairs


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"prompt": "a", "completion": "b"}, "Example 2 has a field 'completion'"),
        ({1: "b"}, "Example 2 has a field 1"),
        ({"prompt": "a"}, "Example 2 is not as it must be"),
        ({"response": 7}, "Example 2 is not as it must be"),
        ({"prompt": None, "response": "b"}, "Example 2 is not as it must be"),
        ({"text": "a", "response": "b"}, "Example 2 is not as it must be"),
        ({}, "Example 2 is not as it must be"),
    ],
)
def test_a_dict_with_other_fields_is_refused_with_a_sentence(given, words):
    with pytest.raises(TextError, match=words) as caught:
        as_examples(["a text", given])
    assert '"response"' in str(caught.value)


def test_too_little_memory_is_said_before_anything_is_copied(model, monkeypatch):
    monkeypatch.setattr("losscore.finetuning.copies.free_bytes", lambda device: 1000)
    with pytest.raises(ModelError, match="choose LoRA"):
        FineTune(model, TEXT, method="full")
    FineTune(model, TEXT, method="lora")


def test_ten_runs_leave_nothing_behind(model):
    gc.collect()

    def tensors() -> int:
        gc.collect()
        return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())

    list(finetune(model, TEXT, **FAST))
    before = tensors()
    for _ in range(10):
        list(finetune(model, TEXT, **FAST))
    assert tensors() <= before
