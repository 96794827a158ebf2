"""The same model on the CPU and on the device: the embedded one, or a seeded one of its shape where it is missing."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import replace

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import losscore
from losscore.errors import ModelError
from losscore.models import Model
from tests.tiny import smol_like

TEXT = "Eight pens cost 8 * 12.5 = 100.0 euros. Then 24 pens cost 24 * 12.5 = 300.0 euros, not 310.0 euros."


def subject(name: str | None) -> Model:
    """The model on the CPU, float32."""
    try:
        return losscore.load(name, device="cpu")
    except ModelError as error:
        if name is not None:
            raise
        print(f"     No embedded model ({error}) A seeded network of its shape stands in for it.", flush=True)
        return _of_its_shape()


def on(model: Model, device: torch.device) -> Model:
    """A copy of `model` on `device`."""
    return replace(model, network=copy.deepcopy(model.network).to(device), device=device)


def fingerprint(model: Model) -> str:
    """A hash of every parameter and buffer."""
    found = hashlib.sha256()
    for name, tensor in model.network.state_dict().items():
        found.update(name.encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _of_its_shape() -> Model:
    torch.manual_seed(0)
    vocabulary = 49_152
    network = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=576,
            intermediate_size=1536,
            num_hidden_layers=30,
            num_attention_heads=9,
            num_key_value_heads=3,
            max_position_embeddings=8192,
            initializer_range=0.04,
            tie_word_embeddings=True,
        )
    ).eval()
    return Model(
        network=network,
        tokenizer=smol_like(),
        name="seeded, of SmolLM2-135M's shape",
        revision="seed 0",
        device=torch.device("cpu"),
        dtype=torch.float32,
        context=8192,
        vocabulary=vocabulary,
    )
