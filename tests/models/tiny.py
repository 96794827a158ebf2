"""Tiny seeded models with a byte-level tokenizer beside them, saved the way real ones are."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    CohereConfig,
    Gemma2Config,
    GPT2Config,
    GraniteConfig,
    LlamaConfig,
    MambaConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

SIZE = 256
SHAPE: dict[str, Any] = {
    "vocab_size": SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": None,
}
CONFIGS: dict[str, Callable[[], PreTrainedConfig]] = {
    "llama": lambda: LlamaConfig(**SHAPE),
    "llama-tied": lambda: LlamaConfig(**SHAPE, tie_word_embeddings=True),
    "gpt2": lambda: GPT2Config(vocab_size=SIZE, n_embd=32, n_layer=2, n_head=4, n_positions=64),
    "gemma2": lambda: Gemma2Config(**SHAPE, head_dim=8, final_logit_softcapping=0.5, sliding_window=8),
    "granite": lambda: GraniteConfig(**SHAPE, logits_scaling=4.0),
    "cohere": lambda: CohereConfig(**SHAPE, logit_scale=0.25),
    "mamba": lambda: MambaConfig(vocab_size=SIZE, hidden_size=32, num_hidden_layers=2, state_size=4),
}


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, ids in the order of the byte-level alphabet."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({character: index for index, character in enumerate(alphabet)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def build(config: PreTrainedConfig) -> Any:
    """A network with seeded weights, larger than the initialiser's so that logits differ visibly."""
    torch.manual_seed(5)
    network = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.3)
    return network


def save(config: PreTrainedConfig, folder: Path) -> Path:
    build(config).save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


def put_in_cache(cache: Path, name: str, config: PreTrainedConfig) -> Path:
    """Lay a tiny model out as the hub's client would; returns its snapshot."""
    repository = cache / f"models--{name.replace('/', '--')}"
    commit = "0123456789abcdef0123456789abcdef01234567"
    (repository / "refs").mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    return save(config, repository / "snapshots" / commit)
