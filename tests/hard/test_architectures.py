"""One tiny network of each build: streamed or taken whole, in windows or not, the values are the network's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    BloomConfig,
    DeepseekV3Config,
    Gemma2Config,
    GemmaConfig,
    GPT2Config,
    GPTNeoXConfig,
    MistralConfig,
    OPTConfig,
    PhiConfig,
    PreTrainedConfig,
    Qwen2Config,
    XLNetConfig,
)

import losscore
from losscore.errors import ModelError
from losscore.models import Model, load
from losscore.models.model import plain_head, project
from tests.models.tiny import CONFIGS, SHAPE, SIZE, build, byte_tokenizer, save

_WITHOUT_GROUPS = {name: value for name, value in SHAPE.items() if name != "num_key_value_heads"}
_ENDS: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 0}
_GPT2: dict[str, Any] = {"vocab_size": SIZE, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, **_ENDS}
_OPT: dict[str, Any] = {"vocab_size": SIZE, "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, **_ENDS}

STREAMING: dict[str, Callable[[], PreTrainedConfig]] = {
    "GPT-NeoX, untied": lambda: GPTNeoXConfig(**_WITHOUT_GROUPS),
    "Qwen2, tied": lambda: Qwen2Config(**SHAPE, tie_word_embeddings=True),
    "Qwen2, untied": lambda: Qwen2Config(**SHAPE),
    "GPT-2, untied": lambda: GPT2Config(**_GPT2, tie_word_embeddings=False),
    "Gemma, padded vocabulary": lambda: GemmaConfig(**{**SHAPE, "vocab_size": SIZE + 64}, head_dim=8),
    "Gemma 2, soft caps": lambda: CONFIGS["gemma2"](),
    "Gemma 2, soft caps and a padded vocabulary": lambda: Gemma2Config(
        **{**SHAPE, "vocab_size": SIZE + 64}, head_dim=8, final_logit_softcapping=2.0, attn_logit_softcapping=1.0
    ),
    "Phi, head with a bias": lambda: PhiConfig(**_WITHOUT_GROUPS),
    "Mistral, sliding attention": lambda: MistralConfig(**SHAPE, sliding_window=8),
    "BLOOM, no positions": lambda: BloomConfig(vocab_size=SIZE, hidden_size=32, n_layer=2, n_head=4, **_ENDS),
}
FALLING_BACK: dict[str, tuple[Callable[[], PreTrainedConfig], str]] = {
    "OPT, narrow head": (
        lambda: OPTConfig(**_OPT, num_attention_heads=4, max_position_embeddings=64, word_embed_proj_dim=16),
        "logits are taken whole",
    ),
    "DeepSeek, latent attention": (
        lambda: DeepseekV3Config(
            **SHAPE,
            n_routed_experts=4,
            num_experts_per_tok=2,
            n_group=1,
            topk_group=1,
            moe_intermediate_size=16,
            q_lora_rank=8,
            kv_lora_rank=8,
            qk_rope_head_dim=4,
            qk_nope_head_dim=4,
            v_head_dim=8,
            first_k_dense_replace=1,
        ),
        "no key-value cache that can be used",
    ),
}
TEXT = "The river is 12.5 km away; 😀 한국어 costs 8 * 3."


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Model]:
    root = tmp_path_factory.mktemp("builds")
    models: dict[str, Model] = {}

    def model(name: str) -> Model:
        if name not in models:
            config = STREAMING[name]() if name in STREAMING else FALLING_BACK[name][0]()
            models[name] = load(str(save(config, root / name.replace(",", "").replace(" ", "-"))), device="cpu")
        return models[name]

    return model


def own_log_p(model: Model, ids: list[int]) -> torch.Tensor:
    """log softmax of the network's own logits, row by row."""
    with torch.no_grad():
        return torch.log_softmax(model.network(torch.tensor([ids])).logits[0].double(), -1)


def assert_the_networks_own(model: Model) -> None:
    sheet = losscore.score(model, TEXT)
    ids = sheet.columns["id"].tolist()
    assert len(ids) == len(TEXT.encode())
    table = own_log_p(model, ids)[:-1]
    p = table.exp()
    ranks = torch.arange(1, table.shape[1] + 1, dtype=torch.float64)
    expected = {
        "log_p": table[range(len(ids) - 1), ids[1:]],
        "entropy": -(p * table).sum(-1),
        "concentration": p.square().sum(-1),
        "expected_rank": p.sort(-1, descending=True).values @ ranks,
    }
    for name, values in expected.items():
        assert sheet.columns[name][1:] == pytest.approx(values.numpy(), rel=1e-4, abs=1e-9), name
    assert sheet.provenance["vocabulary"] == table.shape[1]

    cut = losscore.score(model, TEXT, window=20, stride=7, chunk=3)
    first = 0
    for stop in (20, 27, 34, 41, 48, 55):
        start, stop = stop - 20, min(stop, len(ids))
        start = max(0, stop - 20)
        rows = own_log_p(model, ids[start:stop])
        for t in range(max(first, 1), stop):
            assert cut.columns["log_p"][t] == pytest.approx(float(rows[t - start - 1, ids[t]]), rel=1e-4), t
        first = stop


@pytest.mark.parametrize("name", STREAMING)
def test_a_streamed_head_gives_the_networks_own_values(read: Callable[[str], Model], name: str) -> None:
    model = read(name)
    assert model.streams
    assert model.caches
    assert not any("taken whole" in note for note in model.notes)
    assert_the_networks_own(model)


@pytest.mark.parametrize("name", STREAMING)
def test_a_head_is_called_plain_where_it_is_one_product(read: Callable[[str], Model], name: str) -> None:
    network = read(name).network
    weight = plain_head(network)
    assert (weight is None) == (name.startswith("Gemma 2") or name == "Phi, head with a bias")
    if weight is not None:
        rows = torch.randn(3, weight.shape[1], generator=torch.Generator().manual_seed(2))
        torch.testing.assert_close(rows @ weight.T, project(network, rows), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", FALLING_BACK)
def test_what_cannot_be_streamed_falls_back_and_says_so(read: Callable[[str], Model], name: str) -> None:
    model = read(name)
    assert not (model.streams and model.caches)
    assert any(FALLING_BACK[name][1] in note for note in model.notes)
    assert_the_networks_own(model)
    assert any(FALLING_BACK[name][1] in note for note in losscore.score(model, "a b").provenance["notes"])


@pytest.mark.parametrize("name", [name for name in STREAMING if "padded" in name])
def test_a_padded_vocabulary_counts_and_is_never_cut(read: Callable[[str], Model], name: str) -> None:
    model = read(name)
    assert len(model.tokenizer) < model.vocabulary == SIZE + 64
    sheet = losscore.score(model, "a b c")
    assert model.network.get_input_embeddings().weight.shape[0] == SIZE + 64
    shares = np.exp(sheet.top_log_p[1:]).sum(-1)
    assert (shares < 1).all()
    assert set(sheet.top_ids[1:].flatten().tolist()) & set(range(len(model.tokenizer), model.vocabulary))


@pytest.mark.parametrize("name", ["Qwen2, tied", "Qwen2, untied", "GPT-2, untied"])
def test_saved_and_loaded_again_the_logits_are_the_same_to_the_bit(
    read: Callable[[str], Model], tmp_path: Path, name: str
) -> None:
    model = read(name)
    model.network.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    again = load(str(tmp_path), device="cpu")
    ids = list(range(0, 250, 5))
    assert torch.equal(own_log_p(again, ids), own_log_p(model, ids))
    assert losscore.score(again, TEXT).rows() == losscore.score(model, TEXT).rows()


def test_a_network_whose_tokens_see_later_ones_is_refused(tmp_path: Path) -> None:
    folder = save(XLNetConfig(vocab_size=SIZE, d_model=32, n_layer=2, n_head=4, d_inner=48), tmp_path / "permuting")
    with pytest.raises(ModelError, match="its tokens see later ones"):
        load(str(folder), device="cpu")


def test_half_precision_weights_are_read_in_float32(tmp_path: Path) -> None:
    network = build(CONFIGS["llama"]())
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(parameter.bfloat16())
    rounded = {name: value.bfloat16() for name, value in network.state_dict().items()}
    network.save_pretrained(tmp_path, state_dict=rounded)
    byte_tokenizer().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
    assert {value.dtype for value in load_file(tmp_path / "model.safetensors").values()} == {torch.bfloat16}
    model = load(str(tmp_path), device="cpu")
    assert {parameter.dtype for parameter in model.network.parameters()} == {torch.float32}
    assert losscore.score(model, "a b").provenance["dtype"] == "float32"
    ids = list(range(0, 250, 5))
    with torch.no_grad():
        expected = network(torch.tensor([ids])).logits[0].double()
    torch.testing.assert_close(own_log_p(model, ids), torch.log_softmax(expected, -1), rtol=1e-5, atol=1e-6)
