"""Rows, logits and the window: what `blocks` and `head` give is what the network itself gives."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from losscore.errors import ModelError
from losscore.models import Model, load

from .tiny import CONFIGS

IDS = [(37 * index + 11) % 256 for index in range(50)]
Shelf = Callable[[str], Path]


def read(shelf: Shelf, name: str) -> Model:
    return load(str(shelf(name)), device="cpu")


def logits_of(model: Model, ids: list[int]) -> Tensor:
    with torch.no_grad():
        return model.network(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()


def rows_of(model: Model, ids: list[int], *, first: int = 0, piece: int = 1024) -> Tensor:
    return torch.cat([rows for _, rows in model.blocks(ids, first=first, piece=piece)])


@pytest.mark.parametrize("name", CONFIGS)
def test_head_of_rows_is_the_networks_logits(shelf: Shelf, name: str) -> None:
    model = read(shelf, name)
    assert model.streams
    assert model.vocabulary == 256
    expected = logits_of(model, IDS)
    torch.testing.assert_close(model.head(rows_of(model, IDS)), expected, rtol=1e-4, atol=1e-5 * expected.std().item())


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("piece", [1, 7, 49, 50])
def test_pieces_change_nothing(shelf: Shelf, name: str, piece: int) -> None:
    model = read(shelf, name)
    torch.testing.assert_close(rows_of(model, IDS, piece=piece), rows_of(model, IDS), rtol=1e-4, atol=1e-4)


def test_pieces_are_run_in_pieces(shelf: Shelf) -> None:
    model = read(shelf, "llama")
    assert [(start, len(rows)) for start, rows in model.blocks(IDS, piece=20)] == [(0, 20), (20, 20), (40, 10)]
    assert [(start, len(rows)) for start, rows in model.blocks(IDS)] == [(0, 50)]


def test_rows_before_first_are_left_out(shelf: Shelf) -> None:
    model = read(shelf, "llama")
    got = [(start, len(rows)) for start, rows in model.blocks(IDS, first=25, piece=20)]
    assert got == [(25, 15), (40, 10)]
    torch.testing.assert_close(rows_of(model, IDS, first=25, piece=20), rows_of(model, IDS)[25:], rtol=1e-4, atol=1e-4)
    assert list(model.blocks(IDS, first=50)) == []
    assert list(model.blocks([])) == []


def test_a_model_without_a_usable_cache_is_run_whole(shelf: Shelf) -> None:
    model = replace(read(shelf, "llama"), caches=False)
    assert [start for start, _ in model.blocks(IDS, piece=20)] == [0]


def test_rows_carry_no_gradient_but_head_passes_one(shelf: Shelf) -> None:
    model = read(shelf, "gemma2")
    blocks = model.blocks(IDS, piece=20)
    rows = next(blocks)[1]
    assert not rows.requires_grad
    assert torch.is_grad_enabled()
    leaf = rows.clone().requires_grad_()
    model.head(leaf).logsumexp(-1).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.abs().sum() > 0
    # the rows must be usable in autograd, which inference tensors are not
    model.head(rows).sum().backward()


@pytest.mark.parametrize("ids", [[256], [-1], [0, 300, 1]])
def test_foreign_ids_are_refused_before_anything_runs(shelf: Shelf, ids: list[int]) -> None:
    with pytest.raises(ModelError, match="outside the model's 256"):
        read(shelf, "llama").blocks(ids)


def test_too_many_ids_are_refused_before_anything_runs(shelf: Shelf) -> None:
    with pytest.raises(ModelError, match="65 tokens do not fit the model's context of 64"):
        read(shelf, "llama").blocks([1] * 65)


@pytest.mark.parametrize(("piece", "first"), [(0, 0), (1, -1)])
def test_impossible_pieces_are_a_programmers_error(shelf: Shelf, piece: int, first: int) -> None:
    with pytest.raises(ValueError, match="piece must be at least 1"):
        read(shelf, "llama").blocks(IDS, piece=piece, first=first)


def test_logits_beyond_the_head_are_taken_whole(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """An architecture that scales its logits in a way nobody foresaw."""
    from transformers import LlamaForCausalLM

    plain = LlamaForCausalLM.forward

    def scaled(self: LlamaForCausalLM, *args: object, **kwargs: object) -> object:
        out = plain(self, *args, **kwargs)
        out.logits = out.logits * 1.01
        return out

    scaled.__signature__ = __import__("inspect").signature(plain)  # type: ignore[attr-defined]
    monkeypatch.setattr(LlamaForCausalLM, "forward", scaled)
    model = read(shelf, "llama")
    assert not model.streams
    assert model.caches
    assert any("taken whole" in note for note in model.notes)
    expected = logits_of(model, IDS)
    rows = rows_of(model, IDS, piece=20)
    torch.testing.assert_close(model.head(rows), expected, rtol=1e-4, atol=1e-4)


def test_bfloat16_heads_are_upcast(shelf: Shelf) -> None:
    model = load(str(shelf("gemma2")), device="cpu", dtype="bfloat16")
    assert model.dtype == torch.bfloat16
    assert model.streams
    rows = rows_of(model, IDS, piece=20)
    assert rows.dtype == torch.bfloat16
    assert model.head(rows).dtype == torch.float32


def test_reading_leaves_the_network_as_it_was(shelf: Shelf) -> None:
    model = read(shelf, "gpt2")
    before = {name: value.clone() for name, value in model.network.state_dict().items()}
    model.head(rows_of(model, IDS, piece=20))
    assert not model.network.training
    assert all(torch.equal(value, before[name]) for name, value in model.network.state_dict().items())
    assert not model.network.base_model._forward_hooks
