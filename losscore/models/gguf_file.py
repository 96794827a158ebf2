"""GGUF files: what the header says, and the model and tokenizer that transformers rebuilds from one."""

import mmap
import re
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from losscore.errors import ModelError
from losscore.models.progress import Progress
from losscore.models.silence import silence

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, PreTrainedTokenizerFast

_SPLIT = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
_FIXED = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
# llama.cpp cuts these at every single digit before it applies GPT-2's rule; transformers only knows the latter
_DIGIT_BY_DIGIT = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"})
_GPT2_RULE = frozenset({"default", "gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4"})


@dataclass(frozen=True)
class Header:
    """What a GGUF says about itself: parameter count (from the tensor shapes) and how its text is cut."""

    parameters: int
    pre_tokenizer: str | None


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 4

    def take(self, code: str) -> Any:
        (value,) = struct.unpack_from(f"<{code}", self.data, self.at)
        self.at += struct.calcsize(f"<{code}")
        return value

    def string(self) -> str:
        length = self.take("Q")
        self.at += length
        if self.at > len(self.data):
            raise struct.error("string past the end")
        return self.data[self.at - length : self.at].decode("utf-8")

    def value(self, kind: int) -> Any:
        """One metadata value; an array is stepped over and gives None."""
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.take(_FIXED[kind])
        inner, count = self.take("I"), self.take("Q")
        if inner in _FIXED:
            self.at += count * struct.calcsize(f"<{_FIXED[inner]}")
        else:
            for _ in range(count):
                self.value(inner)
        return None


def read_header(path: Path) -> Header:
    """Read metadata and tensor shapes, without any weight.

    ModelError where the file is not a GGUF, is truncated, is one part of several, or stores its weights in a form
    the gguf library does not know.
    """
    broken = ModelError(f"“{path.name}” is truncated or damaged, or not a GGUF file: get it again.")
    if _SPLIT.search(path.name):
        raise ModelError(f"“{path.name}” is one part of a split GGUF: merge the parts into one file first.")
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            metadata, parameters, end = _walk(data)
            complete = end <= len(data)
            split = metadata.get("split.count", 0) > 1
    except (OSError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError, struct.error) as error:
        raise broken from error
    if split:
        raise ModelError(f"“{path.name}” is one part of a split GGUF: merge the parts into one file first.")
    if not complete:
        raise broken
    return Header(parameters, metadata.get("tokenizer.ggml.pre"))


def _walk(data: mmap.mmap) -> tuple[dict[str, Any], int, int]:
    """The metadata, the number of parameters and the offset where the last tensor ends."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    if data[:4] != b"GGUF":
        raise ValueError("no GGUF magic")
    reader = _Reader(data)
    version = reader.take("I")
    if version not in (2, 3):
        raise ValueError(f"GGUF version {version}")
    tensors, entries = reader.take("Q"), reader.take("Q")
    metadata = {}
    for _ in range(entries):
        key = reader.string()
        metadata[key] = reader.value(reader.take("I"))
    parameters = end = 0
    for _ in range(tensors):
        reader.string()
        shape = [reader.take("Q") for _ in range(reader.take("I"))]
        kind, offset = GGMLQuantizationType(reader.take("I")), reader.take("Q")
        block, width = GGML_QUANT_SIZES[kind]
        parameters += prod(shape)
        end = max(end, offset + prod(shape) // block * width)
    alignment = metadata.get("general.alignment", 32)
    return metadata, parameters, -(-reader.at // alignment) * alignment + end


def read_gguf(
    path: Path, dtype: "torch.dtype", progress: Progress, named: "PreTrainedTokenizerBase | None" = None
) -> tuple["PreTrainedModel", "PreTrainedTokenizerBase", dict[str, Any], list[str]]:
    """Dequantise `path` with transformers.

    Returns the network on the CPU in `dtype`, the tokenizer with its splitting rule mended (`named` instead, as it is),
    transformers' loading report and the notes worth showing. Whatever transformers raises passes through.
    """
    from transformers import AutoModelForCausalLM

    header = read_header(path)
    where: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True}
    tokenizer, notes = (named, []) if named is not None else _rebuilt(path, header, where, progress)
    progress("unpacking the weights", None)
    with silence("unpacking the weights", progress) as warned:
        network, report = AutoModelForCausalLM.from_pretrained(
            str(path.parent), dtype=dtype, output_loading_info=True, **where, **_unpacked()
        )
    if named is None:
        tokenizer.model_max_length = network.config.get_text_config().max_position_embeddings
    return network, tokenizer, report, [*notes, *warned]


def _rebuilt(
    path: Path, header: Header, where: dict[str, Any], progress: Progress
) -> tuple["PreTrainedTokenizerBase", list[str]]:
    from transformers import PreTrainedTokenizerFast

    progress("reading the tokenizer", None)
    with silence("reading the tokenizer", progress) as warned:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(str(path.parent), **where)
    return tokenizer, [*warned, *mend_splitting(tokenizer, header.pre_tokenizer)]


def _unpacked() -> dict[str, Any]:
    """The option that keeps newer releases of transformers from leaving the weights quantised."""
    try:
        from transformers import GgufConfig
    except ImportError:
        return {}
    return {"quantization_config": GgufConfig(dequantize=True)}


def mend_splitting(tokenizer: "PreTrainedTokenizerFast", rule: str | None) -> list[str]:
    """Make a byte-level tokenizer cut text as the GGUF's `tokenizer.ggml.pre` says; returns notes.

    transformers falls back to GPT-2's rule for names it does not know. For the family that isolates digits this
    changes real texts (`"\\n\\n3"` gives two single newlines instead of one double newline), so it is put right;
    for an unknown name the reader is told.
    """
    from tokenizers import pre_tokenizers

    backend = tokenizer.backend_tokenizer
    if rule in _DIGIT_BY_DIGIT:
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        return []
    if not isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel) or rule in _GPT2_RULE:
        return []
    if rule is None:
        return ["The GGUF doesn't say how it cuts text: GPT-2's rule is used, tokens may differ from the original's."]
    return [f"The GGUF's rule for cutting text (“{rule}”) is unknown here: tokens may differ from the original's."]
