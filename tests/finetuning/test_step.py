"""One step's loss and gradient on all weights, against plain autograd on full logits with the drop-in losses."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from losscore.finetuning.passage import Passage, batches, padded, read_passages
from losscore.finetuning.step import run_pass
from losscore.finetuning.trainee import Trainee
from losscore.objectives import CATALOGUE, Objective, find
from losscore.text.examples import Example
from tests.objectives.family import FAMILY
from tests.tiny import mini_model

EXAMPLES = [
    Example("Q: 2 pens? ", "They cost 2 * 13 = 26 euros."),
    Example("", "9 or 12.5"),
    Example("The", " answer is words alone"),
    Example("Long and not trained on: 77. ", "3"),
]


@pytest.fixture(scope="module")
def model() -> Any:
    return mini_model()


def plain_step(model: Any, objective: Objective, examples: list[Example]) -> tuple[float, dict[str, Tensor]]:
    """Each example's full logits by the model itself; labels from the encoder; one mean over all targets."""
    network = copy.deepcopy(model.network)
    width, rows, labels, places = 0, [], [], []
    for example in examples:
        encoding = model.encoder.encode(example.response, example.prompt)
        rows.append(network(torch.tensor([encoding.ids])).logits[0])
        labels.append([i if t else -100 for i, t in zip(encoding.ids, encoding.is_target, strict=True)])
        places.append([torch.nan if d is None else float(d.place) for d in encoding.digits])
        width = max(width, len(encoding))
    logits = torch.stack([torch.nn.functional.pad(one, (0, 0, 0, width - len(one))) for one in rows])
    loss = objective(
        logits,
        torch.tensor([[*one, *[-100] * (width - len(one))] for one in labels]),
        digit_ids=model.encoder.vocabulary.digit_ids,
        places=torch.tensor([[*one, *[torch.nan] * (width - len(one))] for one in places]),
        embedding=network.get_output_embeddings().weight,
    )
    loss.backward()
    return loss.item(), {name: p.grad for name, p in network.named_parameters() if p.grad is not None}


def our_step(
    model: Any, objective: Objective, passages: list[Passage], parts: int = 1
) -> tuple[float, dict[str, Tensor]]:
    network = copy.deepcopy(model.network)
    done = run_pass(
        objective,
        Trainee(network, streams=True),
        passages,
        vocabulary=model.vocabulary,
        digit_ids=model.encoder.vocabulary.digit_ids,
        parts=parts,
    )
    return done.loss, {name: p.grad for name, p in network.named_parameters() if p.grad is not None}


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor], tolerance: float) -> None:
    assert ours.keys() == theirs.keys()
    scale = max(float(gradient.abs().max()) for gradient in theirs.values())
    assert scale > 1e-5
    for name, gradient in theirs.items():
        assert float((ours[name] - gradient).abs().max()) <= tolerance * scale, name


@pytest.mark.parametrize("name", FAMILY)
def test_the_gradient_of_a_step_is_autograds_on_full_logits(model, name):
    passages = read_passages(model, EXAMPLES, "auto")
    loss, theirs = plain_step(model, FAMILY[name], EXAMPLES)
    mine, ours = our_step(model, FAMILY[name], passages)
    assert mine == pytest.approx(loss, rel=1e-5)
    assert_same(ours, theirs, 1e-5)


@pytest.mark.parametrize("name", CATALOGUE)
def test_computed_in_parts_it_is_the_same_step(model, name):
    passages = read_passages(model, EXAMPLES, "auto")
    loss, whole = our_step(model, find(name), passages)
    for parts in (2, 4):
        again, ours = our_step(model, find(name), passages, parts)
        assert again == pytest.approx(loss, rel=1e-6)
        assert_same(ours, whole, 5e-6)


def test_only_the_response_is_trained_on(model):
    passages = read_passages(model, EXAMPLES, "auto")
    for passage, example in zip(passages, EXAMPLES, strict=True):
        encoding = passage.encoding
        assert encoding.text == example.prompt + example.response
        rows = [row for row in range(1, len(encoding)) if encoding.is_target[row]]
        assert passage.targets.count == len(rows)
        assert passage.targets.ids[passage.targets.trained].tolist() == [encoding.ids[row] for row in rows]


def test_a_text_longer_than_the_context_is_trained_on_once_throughout(model):
    text = " ".join(str(n) for n in range(60))
    (passage,) = read_passages(model, [Example("", text)], "auto")
    assert len(passage.stretches) > 2
    assert passage.targets.ids.tolist() == list(passage.encoding.ids[1:])
    assert all(len(stretch.ids) <= model.context for stretch in passage.stretches)


def test_groups_keep_the_order_and_bound_the_ids(model):
    passages = read_passages(model, EXAMPLES * 3, "auto")
    stretches = [stretch for passage in passages for stretch in passage.stretches]
    for parts in (1, 2, 5, 12, 40):
        groups = batches(stretches, parts, 60)
        assert [stretch for group in groups for stretch in group] == stretches
        assert len(groups) >= min(parts, len(stretches))
        for group in groups:
            ids = padded(group, torch.device("cpu"))
            assert len(group) == 1 or ids.numel() <= 60
            for row, stretch in zip(ids.tolist(), group, strict=True):
                assert tuple(row[: len(stretch.ids)]) == stretch.ids
