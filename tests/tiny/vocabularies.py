"""One small tokenizer of each kind that language models come with, built on the spot."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizer, PreTrainedTokenizerFast

CORPUS = (
    "Eight pens cost 8 * 12.5 = 100.0 euros, 24 pens cost 300.0 euros and 410 people paid 1,234,567.89 in all.",
    "It was overheard that the river is near the station; the words there are plain words, and so are these.",
    "In 2024 the twelve boxes held 12 rolls each, 144 rolls, and 3.14 is not 22 over 7.",
    "The 12 people and the 24 people and the 100 people in 2024 paid 12 or 24 or 100 euros.",
)


@cache
def smol_like(bos: bool = False) -> PreTrainedTokenizerFast:
    """Byte-level BPE, every digit a token of its own (as SmolLM2); with `bos`, it puts one in front by itself."""
    split = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _bytes()])
    return _byte_level(split, bos=bos)


@cache
def gpt2_like() -> PreTrainedTokenizerFast:
    """Byte-level BPE that merges digits and glues a blank to what follows it (as GPT-2)."""
    return _byte_level(_bytes(), bos=False)


def _bytes() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _byte_level(split: Any, *, bos: bool) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        CORPUS * 3,
        trainers.BpeTrainer(
            vocab_size=400,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=["<|endoftext|>", "<|start|>"],
            show_progress=False,
        ),
    )
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|start|> $A", special_tokens=[("<|start|>", tokenizer.token_to_id("<|start|>"))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|endoftext|>", **({"bos_token": "<|start|>"} if bos else {})
    )


@cache
def llama2_like(bos: bool = False, compatible: bool = False) -> PreTrainedTokenizerFast:
    """SentencePiece-like BPE: blanks are "▁", one is put before the text, unknown characters fall back to bytes.

    With `compatible`, compatible characters are rewritten first (NFKC).
    """
    first = [normalizers.NFKC()] if compatible else []
    blanks = normalizers.Sequence([*first, normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trained = Tokenizer(models.BPE())
    trained.normalizer = blanks
    trained.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Split("▁", "merged_with_next")]
    )
    trained.train_from_iterator(CORPUS * 3, trainers.BpeTrainer(vocab_size=120, show_progress=False))
    learned = json.loads(trained.to_str())["model"]
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += [piece for piece in learned["vocab"] if piece not in pieces]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=[tuple(merge) for merge in learned["merges"]],
            byte_fallback=True,
            fuse_unk=True,
            unk_token="<unk>",
        )
    )
    tokenizer.normalizer = blanks
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


@cache
def wordpiece_like() -> PreTrainedTokenizerFast:
    """WordPiece that normalises (NFKC), lowercases and drops blanks (as BERT)."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(
        CORPUS * 3, trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[UNK]"], show_progress=False)
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


@cache
def composing() -> PreTrainedTokenizerFast:
    """Byte-level BPE behind an NFC normaliser (as Qwen)."""
    tokenizer = _byte_level(_bytes(), bos=False).backend_tokenizer
    tokenizer.normalizer = normalizers.NFC()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>")


class _Characters(PreTrainedTokenizer):
    """A tokenizer written in Python: no offsets. One token per character; with `fold`, capitals are rewritten."""

    def __init__(self, fold: bool = False, **settings: Any) -> None:
        self._fold = fold
        self._table = {chr(code): code - 31 for code in range(32, 127)} | {"<unk>": 0}
        super().__init__(unk_token="<unk>", **settings)

    @property
    def vocab_size(self) -> int:
        return len(self._table)

    def get_vocab(self) -> dict[str, int]:
        return dict(self._table)

    def _tokenize(self, text: str, **_: Any) -> list[str]:
        return list(text.lower() if self._fold else text)

    def _convert_token_to_id(self, token: str) -> int:
        return self._table.get(token, 0)

    def _convert_id_to_token(self, index: int) -> str | None:
        return next((piece for piece, i in self._table.items() if i == index), None)


def characters(fold: bool = False) -> PreTrainedTokenizer:
    """One token per ASCII character, in Python."""
    return _Characters(fold)


KINDS: dict[str, Callable[[], Any]] = {
    "smol": smol_like,
    "gpt2": gpt2_like,
    "llama2": llama2_like,
    "wordpiece": wordpiece_like,
    "composing": composing,
    "compatible": lambda: llama2_like(compatible=True),
}
