"""The exact bytes behind every id of a tokenizer, and which ids are the ten digits."""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Any

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_level_alphabet() -> dict[str, int]:
    """Byte-level BPE writes each byte as one printable character (GPT-2): the table back to the byte."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(256 + n): byte for n, byte in enumerate(hidden)})
    return table


_ALPHABET = _byte_level_alphabet()


class Vocabulary:
    """Bytes of the ids of one tokenizer (a `transformers` tokenizer).

    Byte-level BPE and SentencePiece vocabularies spell bytes exactly. Others (WordPiece) spell text only; their
    bytes here are those of the piece without its continuation mark.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._added: dict[int, str] = {i: str(token) for i, token in tokenizer.added_tokens_decoder.items()}
        self.style = _style(tokenizer)
        self.special_ids: frozenset[int] = frozenset(
            i for i, token in tokenizer.added_tokens_decoder.items() if token.special
        ) | frozenset(tokenizer.all_special_ids)

    def bytes_of(self, token_id: int) -> bytes:
        """The bytes that `token_id` stands for; empty for an id without a spelling (padding of the vocabulary)."""
        if token_id in self._added:
            added = self._added[token_id]
            # Gemma's runs of blanks are added tokens, spelled with marks like its other pieces.
            return (added.replace("▁", " ") if self.style == "sentencepiece" else added).encode("utf-8", "replace")
        piece: str | None = self._tokenizer.convert_ids_to_tokens(int(token_id))
        if piece is None:
            return b""
        if self.style == "byte-level" and all(character in _ALPHABET for character in piece):
            return bytes(_ALPHABET[character] for character in piece)
        if self.style == "sentencepiece":
            byte = _BYTE_TOKEN.fullmatch(piece)
            return bytes([int(byte[1], 16)]) if byte else piece.replace("▁", " ").encode()
        return piece.removeprefix("##").encode() if self.style == "wordpiece" else piece.encode()

    @cached_property
    def digit_ids(self) -> tuple[int, ...] | None:
        """The ids that decode to exactly one ASCII digit, in the order 0-9; None unless all ten exist.

        Where a digit has two spellings (its own piece and a byte token), its own piece is meant.
        """
        table: dict[str, int] = self._tokenizer.get_vocab()
        ids: list[int] = []
        for digit in "0123456789":
            spellings = (digit, f"##{digit}") if self.style == "wordpiece" else (digit, f"<0x{ord(digit):02X}>")
            found = next((table[piece] for piece in spellings if piece in table), None)
            if found is None:
                return None
            ids.append(found)
        return tuple(ids)


def _style(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return "sentencepiece"
    layers = json.loads(backend.to_str())
    kinds = set(_types(layers.get("decoder"))) | set(_types(layers.get("pre_tokenizer")))
    if "ByteLevel" in kinds:
        return "byte-level"
    if "WordPiece" in kinds:
        return "wordpiece"
    if kinds & {"ByteFallback", "Metaspace"} or "▁" in json.dumps(layers.get("decoder"), ensure_ascii=False):
        return "sentencepiece"
    return "plain"


def _types(layer: Any) -> list[str]:
    """The `type` of a tokenizer layer and of the layers it is made of."""
    if not isinstance(layer, dict):
        return []
    inner = [*layer.get("decoders", []), *layer.get("pretokenizers", [])]
    return [layer.get("type", ""), *(kind for part in inner for kind in _types(part))]
