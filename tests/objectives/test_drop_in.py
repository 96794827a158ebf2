"""The call on logits and labels: the shift, what a mean is taken over, memory, precision, refusals."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from losscore import objectives
from losscore.errors import LosscoreError
from losscore.objectives import drop_in, log_p
from tests.objectives.family import DIGIT_IDS, FAMILY, WHOLE, batch, flat, tokens_of

every = pytest.mark.parametrize("name", FAMILY)


def knowing(texts: list[list[int]], vocabulary: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of a model that knows the next token of each text, and the texts as labels."""
    labels = torch.tensor(texts)
    logits = torch.zeros(*labels.shape, vocabulary)
    logits[:, :-1].scatter_(-1, labels[:, 1:, None], 60.0)
    return logits, labels


def test_labels_are_shifted_exactly_once() -> None:
    texts = [[1, 2, 3, 4, 5], [9, 8, 7, 6, 5]]
    logits, labels = knowing(texts)
    assert float(objectives.nll(logits, labels)) == pytest.approx(0, abs=1e-6)
    assert float(objectives.nll(logits, labels, shift=False)) > 10
    assert float(objectives.nll(logits[:, :-1], labels[:, 1:], shift=False)) == pytest.approx(0, abs=1e-6)
    for row, text in enumerate(texts):
        alone, own = knowing([text])
        each = objectives.nll(logits, labels, reduction="none")[row]
        torch.testing.assert_close(objectives.nll(alone, own, reduction="none")[0], each)


@every
def test_shifting_by_hand_is_the_same(name: str) -> None:
    one = batch(1)
    by_hand = replace(one, logits=one.logits[:, :-1], labels=one.labels[:, 1:], places=one.places[:, 1:])
    torch.testing.assert_close(by_hand.loss(FAMILY[name], shift=False), one.loss(FAMILY[name]))
    each = by_hand.loss(FAMILY[name], shift=False, reduction="none")
    torch.testing.assert_close(each, one.loss(FAMILY[name], reduction="none"))


def test_accumulated_means_are_over_all_tokens() -> None:
    def losing(nll: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
        p = torch.tensor(nll, dtype=torch.float64).neg().exp()
        return torch.stack([p.log(), (1 - p).log()], -1)[None], torch.zeros(1, len(nll), dtype=torch.long)

    parts = [losing([1.0]), losing([2.0, 2.0, 2.0])]
    total = sum(objectives.nll(*part, shift=False, count=4) for part in parts)
    assert float(total) == pytest.approx(7 / 4, rel=1e-12)


def test_a_label_in_front_is_no_target() -> None:
    one = batch(2)
    first = replace(one, labels=one.labels.clone())
    first.labels[:, 0] = -100
    torch.testing.assert_close(one.loss(objectives.nll), first.loss(objectives.nll), rtol=0, atol=0)


def test_another_ignore_index() -> None:
    one = batch(2)
    zeros = replace(one, labels=one.labels.where(one.labels != -100, 3))
    torch.testing.assert_close(zeros.loss(objectives.nll, ignore_index=3), one.loss(objectives.nll), rtol=0, atol=0)


def test_a_digit_is_a_digit_id_with_a_place() -> None:
    one = batch(3)
    words = replace(one, places=torch.ones_like(one.places))
    torch.testing.assert_close(words.loss(objectives.ntl_was), one.loss(objectives.ntl_was))
    some = replace(one, places=one.places.where(one.places > 0, torch.nan))
    assert not torch.allclose(some.loss(objectives.ntl_was), one.loss(objectives.ntl_was))


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("label", "logit"), [(1, torch.nan), (1, torch.inf), (2, torch.nan), (2, torch.inf)])
def test_a_row_without_a_finite_sum_is_no_token(name: str, reduction: str, label: int, logit: float) -> None:
    """Be it a word's (label 1) or a digit's (2), and not its target's logit."""
    one = batch(3)
    ignored = replace(one, labels=one.labels.clone())
    ignored.labels[1, label] = -100
    broken = replace(one, logits=one.logits.clone())
    broken.logits[1, label - 1, 0] = logit
    value, gradient = broken.value_and_gradient(FAMILY[name], reduction=reduction)
    expected, expected_gradient = ignored.value_and_gradient(FAMILY[name], reduction=reduction)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-12, atol=1e-14)


def test_digits_are_averaged_over_the_digits_of_all_batches() -> None:
    """Of two batches only the second has digits: the mean is over its digits, the sum as in one batch."""
    one = batch(4, texts=2)
    one.places[0] = torch.nan
    counts: dict[str, Any] = {"count": one.targets, "digit_count": one.digits}
    parts = [one.only(slice(i, i + 1)).loss(FAMILY["sum"], **counts) for i in range(2)]
    torch.testing.assert_close(parts[0] + parts[1], one.loss(FAMILY["sum"]))
    nothing = replace(one, places=one.places * torch.nan)
    plain = nothing.loss(FAMILY["sum"], count=nothing.targets, digit_count=0)
    torch.testing.assert_close(plain, nothing.loss(objectives.nll))


class Sizes(TorchDispatchMode):
    """What is allocated while it is on: which tensors are as large as `whole`, and the size of the largest other one
    above 16 bits."""

    def __init__(self, whole: torch.Tensor) -> None:
        super().__init__()
        self.given, self.elements = whole.untyped_storage().data_ptr(), whole.numel()
        self.largest, self.whole = 0, set[int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                memory = tensor.untyped_storage().data_ptr()
                if tensor.numel() >= self.elements // 2 and memory != self.given:
                    self.whole.add(memory)
                elif tensor.itemsize > 2 and memory not in {*self.whole, self.given}:
                    self.largest = max(self.largest, tensor.numel())
        return result


@pytest.mark.parametrize("name", sorted(FAMILY.keys() - WHOLE))
@pytest.mark.parametrize("chunks", [4, 16])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_nothing_is_as_large_as_the_logits_but_their_gradient(
    name: str, chunks: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = batch(5, texts=4, time=16, dtype=dtype)
    logits = one.logits.repeat(1, 1, 40).requires_grad_()
    one = replace(one, embedding=one.embedding.repeat(40, 1))
    chunk = logits.numel() // chunks
    monkeypatch.setattr(log_p, "CACHED", chunk)
    monkeypatch.setattr(log_p, "LARGE", chunk)
    saved: list[int] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        given = tensor.untyped_storage().data_ptr() == logits.untyped_storage().data_ptr()
        saved.append(0 if given else tensor.numel())
        return tensor

    with Sizes(logits) as sizes, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        replace(one, logits=logits).loss(FAMILY[name]).backward()
    assert 0 < sizes.largest <= chunk
    # Nor do the chunks wait for the backward pass.
    assert sum(saved) < chunk
    # Neither a copy of the logits nor a padded gradient for each chunk.
    assert len(sizes.whole) == 1


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_logits_are_taken_to_float32(name: str, dtype: torch.dtype) -> None:
    one = batch(6, dtype=dtype)
    value, gradient = one.value_and_gradient(FAMILY[name])
    wide, wide_gradient = replace(one, logits=one.logits.float()).value_and_gradient(FAMILY[name])
    assert value.dtype == torch.float32
    assert gradient.dtype == dtype
    torch.testing.assert_close(value, wide, rtol=1e-6, atol=1e-7)
    # Two paths to the logits (EMO's) are rounded before they are added.
    rounding = float(wide_gradient.abs().max()) * torch.finfo(dtype).eps
    torch.testing.assert_close(gradient.float(), wide_gradient, rtol=torch.finfo(dtype).eps, atol=rounding)


@every
def test_float32_is_as_good_as_its_logits(name: str) -> None:
    one = batch(7, dtype=torch.float32)
    value, gradient = one.value_and_gradient(FAMILY[name])
    exact, exact_gradient = replace(one, logits=one.logits.double()).value_and_gradient(FAMILY[name])
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient.double(), exact_gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("shift", [0.0, 1e3, 1e5])
@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_no_worse_than_the_naive_float32_code(shift: float, scale: float) -> None:
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(1, 40, 500, generator=random) * scale + shift
    labels = logits.argmax(-1)
    labels[:, ::2] = torch.randint(500, (1, 20), generator=random)
    exact = -torch.log_softmax(logits.double(), -1).gather(-1, labels[..., None]).squeeze(-1)
    naive = torch.nn.functional.cross_entropy(logits[0], labels[0], reduction="none")[None]
    ours = objectives.nll(logits, labels, shift=False, reduction="none")
    assert (ours - exact).abs().max() <= (naive - exact).abs().max() + 1e-7


def test_bfloat16_logits_of_a_whole_vocabulary() -> None:
    logits = (torch.randn(1, 1, 50_257, generator=torch.Generator().manual_seed(1)) * 3).bfloat16()
    labels = torch.tensor([[1234]])
    exact = -torch.log_softmax(logits.double(), -1)[0, 0, 1234]
    assert abs(float(objectives.nll(logits, labels, shift=False)) - float(exact)) < 1e-5


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"reduction": "average"}, "The reduction must be none, mean or sum, not 'average'."),
        ({"labels": torch.zeros(3, 4, dtype=torch.long)}, "must agree in batch and time"),
        ({"places": torch.zeros(3, 4)}, "must agree in batch and time"),
        ({"labels": torch.full((3, 7), 30)}, "Labels must be token ids below 30, or -100 to be ignored."),
        ({"labels": torch.full((3, 7), -1)}, "Labels must be token ids below 30, or -100 to be ignored."),
        ({"places": None}, "DEL needs to know the digits: give the ten digit_ids and the places."),
        ({"digit_ids": None}, "DEL needs to know the digits: give the ten digit_ids and the places."),
        ({"digit_ids": DIGIT_IDS[1:]}, "DEL needs to know the digits: give the ten digit_ids and the places."),
        ({"embedding": torch.ones(31, 2)}, "The embedding must have 30 rows, one for each token of the vocabulary."),
        ({"count": 4}, "DEL also averages over digits: give digit_count beside count."),
        ({"alpha": 7}, "alpha must lie between 0 and 1, not 7."),
        ({"tau": 7}, "DEL has no parameter 'tau'; it has: alpha."),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_what_does_not_fit_is_one_sentence(options: dict[str, Any], sentence: str) -> None:
    one = batch(8)
    given = {"logits": one.logits, "labels": one.labels, "places": one.places, "digit_ids": DIGIT_IDS} | options
    with pytest.raises(LosscoreError) as raised:
        objectives.del_loss(given.pop("logits"), given.pop("labels"), **given)
    assert sentence in str(raised.value)
    assert str(raised.value).endswith(".")


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a person's process runs it: without the shape checks of the tests, which would speak first."""
    monkeypatch.setattr(drop_in, "loss", inspect.unwrap(drop_in.loss))
    monkeypatch.setattr(objectives.Objective, "__call__", inspect.unwrap(objectives.Objective.__call__))


@pytest.mark.parametrize("name", ["ntl_was", "ntl_mse", "dist2loss", "del_penalty"])
def test_a_term_over_digits_needs_digits(name: str) -> None:
    logits, target, _, _ = flat(batch(8))
    with pytest.raises(LosscoreError, match="needs to know the digits"):
        FAMILY[name].per_token(tokens_of(logits, target))


def test_emo_needs_an_embedding_and_overtone_a_distribution() -> None:
    one = batch(8)
    with pytest.raises(LosscoreError, match="the output embedding"):
        objectives.emo(one.logits, one.labels)
    logits, target, _, _ = flat(one)
    with pytest.raises(LosscoreError, match="looks at the whole distribution"):
        objectives.overtone.per_token(tokens_of(logits, target))
