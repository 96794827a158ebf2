"""Kinds of tokenizers beyond the usual few, each with the habit that trips text tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from tests.tiny import KINDS
from tests.tiny.vocabularies import CORPUS

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


@cache
def unigram(prepend: str, fall_back: bool) -> PreTrainedTokenizerFast:
    """Unigram over "▁" (as T5 or XGLM); prepend: "always", "first" or "never" a blank before the text.

    fall_back: unknown characters become byte tokens instead of one <unk>.
    """
    tokenizer = Tokenizer(models.Unigram())
    blanks = {"replacement": "▁", "prepend_scheme": prepend}
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(**blanks)
    tokenizer.decoder = decoders.Metaspace(**blanks)
    tokenizer.train_from_iterator(
        CORPUS * 3,
        trainers.UnigramTrainer(
            vocab_size=150, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
        ),
    )
    if fall_back:
        layers = json.loads(tokenizer.to_str())
        layers["model"]["vocab"] += [[piece, -10.0] for piece in BYTES]
        layers["model"]["byte_fallback"] = True
        tokenizer = Tokenizer.from_str(json.dumps(layers))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>")


@cache
def gemma_like() -> PreTrainedTokenizerFast:
    """BPE with byte fallback and no blank in front; runs of blanks and of newlines are added tokens; BOS of its own."""
    runs = ["▁▁", "▁▁▁", "\n\n", "<td>"]
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", *runs, *BYTES, "▁", "\n"]
    pieces += sorted({character for text in CORPUS for character in text if character != " "})
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=[("▁", "▁"), ("▁▁", "▁"), ("\n", "\n")],
            byte_fallback=True,
            fuse_unk=True,
            unk_token="<unk>",
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_tokens([AddedToken(run, normalized=False) for run in runs])
    tokenizer.add_special_tokens(["<pad>", "<eos>", "<bos>", "<unk>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>", pad_token="<pad>"
    )


@cache
def roberta_like() -> PreTrainedTokenizerFast:
    """Byte-level BPE that puts a blank before the text, a BOS before that and an EOS after it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        CORPUS * 3,
        trainers.BpeTrainer(
            vocab_size=350, initial_alphabet=alphabet, special_tokens=["<s>", "</s>"], show_progress=False
        ),
    )
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


@cache
def gpt1_like() -> PreTrainedTokenizerFast:
    """Lower-cased words that end in "</w>"; blanks and control characters are dropped."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    tokenizer.train_from_iterator(
        CORPUS * 3,
        trainers.BpeTrainer(vocab_size=200, end_of_word_suffix="</w>", special_tokens=["<unk>"], show_progress=False),
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


@cache
def dropping() -> PreTrainedTokenizerFast:
    """Four letters and a BOS of its own; every other character is dropped without an unknown token."""
    tokenizer = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate("CGTN")}, merges=[]))
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 4)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")


EVERY: dict[str, Callable[[], Any]] = {
    **KINDS,
    "unigram, blank always": lambda: unigram("always", False),
    "unigram, blank first, bytes": lambda: unigram("first", True),
    "unigram, no blank, bytes": lambda: unigram("never", True),
    "gemma": gemma_like,
    "roberta": roberta_like,
    "gpt1": gpt1_like,
    "dropping": dropping,
}
# Those that can spell any text byte by byte.
EXACT = ("smol", "gpt2", "llama2", "unigram, blank first, bytes", "unigram, no blank, bytes", "gemma", "roberta")
