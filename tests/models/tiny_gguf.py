"""A tiny Llama written as a GGUF by the gguf library, the way llama.cpp's converter lays one out."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from tokenizers import pre_tokenizers

from .tiny import CONFIGS, SIZE, build

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
SPECIAL = "<|x|>"


def gguf_name(name: str) -> str:
    name = name.removesuffix(".weight")
    if not name.startswith("model.layers."):
        return f"{_NAMES[name]}.weight"
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{_NAMES[rest]}.weight"


def halves_interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """GGUF keeps the rotary pairs side by side, transformers half a head apart."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write(path: Path, *, rule: str = "smollm", quantised: bool = False) -> Any:
    """Write the file and return the network it was made of, with weights rounded as the file's."""
    network = build(CONFIGS["llama"]())
    config = network.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(SIZE)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    double = chr(0x010A) * 2  # two newlines, in the byte-level spelling
    tokens = [SPECIAL, double, *alphabet[: SIZE - 2]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(rule)
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL, *[gguf.TokenType.NORMAL] * (SIZE - 1)])
    writer.add_token_merges([f"{double[0]} {double[0]}"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    with torch.no_grad():
        for name, weight in network.state_dict().items():
            if quantised and weight.ndim == 2 and "proj" in name and weight.shape[1] % 32 == 0:
                kind = gguf.GGMLQuantizationType.Q8_0
                rounded = gguf.dequantize(gguf.quantize(weight.numpy(), kind), kind)
                weight.copy_(torch.from_numpy(rounded))
            else:
                kind = gguf.GGMLQuantizationType.F32
            heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
            count = next((heads[part] for part in heads if part in name), None)
            stored = halves_interleaved(weight, count) if count else weight
            data = np.ascontiguousarray(stored.numpy())
            writer.add_tensor(gguf_name(name), gguf.quantize(data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return network
