"""What stands before a text: BOS once, by whom, and what the first token then is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import losscore
from losscore.text import TextEncoder
from tests.hard.vocabularies import gemma_like, roberta_like
from tests.tiny import gpt2_like, llama2_like, mini_model, smol_like, wordpiece_like


def by_hand(model: Any, ids: list[int]) -> list[float]:
    """log p of every id but the first."""
    with torch.no_grad():
        logits = model.network(torch.tensor([ids])).logits[0].double()
    return [float(torch.log_softmax(row, -1)[i]) for row, i in zip(logits[:-1], ids[1:], strict=True)]


@pytest.mark.parametrize("tokenizer", [smol_like(bos=True), llama2_like(bos=True), gemma_like(), roberta_like()])
@pytest.mark.parametrize("policy", ["auto", "always"])
def test_one_bos_and_the_model_reads_it(tokenizer: Any, policy: str) -> None:
    model = mini_model(tokenizer)
    sheet = losscore.score(model, "the river", bos=policy)
    ids = sheet.columns["id"].tolist()
    assert ids[0] == tokenizer.bos_token_id
    assert ids.count(tokenizer.bos_token_id) == 1
    assert tokenizer.eos_token_id not in ids
    assert math.isnan(sheet.columns["log_p"][0])
    assert sheet.columns["log_p"][1:] == pytest.approx(by_hand(model, ids), rel=1e-4)
    assert sheet.provenance["bos"] == f"{tokenizer.bos_token}, the tokenizer's own setting"


@pytest.mark.parametrize("tokenizer", [smol_like(bos=True), llama2_like(bos=True), gemma_like()])
@pytest.mark.parametrize("policy", ["auto", "always", "never"])
def test_a_text_that_brings_its_own_bos_gets_no_second_one(tokenizer: Any, policy: str) -> None:
    encoding = TextEncoder(tokenizer).encode(f"{tokenizer.bos_token}the river", bos=policy, parse_special=True)
    assert encoding.ids[0] == tokenizer.bos_token_id
    assert encoding.ids.count(tokenizer.bos_token_id) == 1
    assert (encoding.prefix, encoding.bytes_[0]) == (0, tokenizer.bos_token.encode())
    assert encoding.is_special[0]
    assert not encoding.is_target[0]


def test_a_typed_bos_that_is_text_gets_one_of_its_own_in_front() -> None:
    tokenizer = smol_like(bos=True)
    encoding = TextEncoder(tokenizer).encode("<|start|>the river")
    assert encoding.ids.count(tokenizer.bos_token_id) == 1
    assert encoding.prefix == 1
    assert b"".join(encoding.bytes_) == b"<|start|>the river"


@pytest.mark.parametrize("tokenizer", [gpt2_like(), wordpiece_like()])
def test_without_a_bos_there_is_no_none_and_no_pad(tokenizer: Any) -> None:
    for policy in ("auto", "always", "never"):
        encoding = TextEncoder(tokenizer).encode("the river", bos=policy)
        assert all(isinstance(i, int) for i in encoding.ids)
        assert encoding.prefix == int(policy == "always" and tokenizer.eos_token_id is not None)
        assert encoding.bos


@pytest.mark.parametrize("text", ["Hi", "H", "7"])
def test_one_token_alone_has_a_row_and_no_number(text: str) -> None:
    model = mini_model(gpt2_like())
    alone = losscore.score(model, text)
    while len(alone) > 1:
        text, alone = text[:-1], losscore.score(model, text[:-1])
    assert alone.summary.scored == 0
    assert alone.summary.mean_nll is None
    assert alone.rows()[0]["log_p"] is None
    given = losscore.score(model, text, bos="always")
    assert given.columns["log_p"][1:] == pytest.approx(by_hand(model, given.columns["id"].tolist()), rel=1e-4)


def test_leaving_the_bos_out_changes_the_numbers_and_is_said() -> None:
    model = mini_model(smol_like(bos=True))
    following, never = (
        losscore.score(model, "the river is near"),
        losscore.score(model, "the river is near", bos="never"),
    )
    assert not np.allclose(following.columns["log_p"][2:], never.columns["log_p"][1:], rtol=1e-3)
    assert (following.provenance["bos"], never.provenance["bos"]) == (
        "<|start|>, the tokenizer's own setting",
        "none, as asked",
    )


def test_a_pad_token_added_for_batching_changes_no_number() -> None:
    backend = smol_like().backend_tokenizer
    fresh = type(smol_like())(tokenizer_object=type(backend).from_str(backend.to_str()), eos_token="<|endoftext|>")
    model = mini_model(fresh)
    text = "the river <pad> is <pad>"
    before = losscore.score(model, text)
    fresh.add_special_tokens({"pad_token": "<pad>"})
    for encoder in (model.encoder, TextEncoder(fresh)):
        assert encoder.encode(text).ids == tuple(before.columns["id"].tolist())
    after = losscore.score(model, text)
    assert all(
        np.array_equal(np.asarray(before.columns[name]), np.asarray(after.columns[name]), equal_nan=True)
        for name in before.columns
        if name not in ("token", "bytes")
    )
    assert after.columns["token"] == before.columns["token"]
