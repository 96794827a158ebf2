"""A person's text as the model reads it: ids, the bytes and characters behind each, and which are targets."""

from __future__ import annotations

import string
import threading
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from losscore.errors import TextError
from losscore.text.display import show_bytes, show_character
from losscore.text.numbers import DigitPlace, digit_places
from losscore.text.vocabulary import Vocabulary

BOS_POLICIES = ("auto", "always", "never")


@dataclass(frozen=True)
class Encoding:
    """One text, token by token; all sequences have one entry per token.

    `start:end` are characters of `text` (prompt and response joined); a token that holds only part of a character
    spans that whole character. `bytes_` joined are the UTF-8 of `text`; a token that was added (BOS) has none.
    `digits` holds the digit and place of the tokens that are one digit of the digit set.
    """

    text: str
    ids: tuple[int, ...]
    bytes_: tuple[bytes, ...]
    start: tuple[int, ...]
    end: tuple[int, ...]
    is_target: tuple[bool, ...]
    is_special: tuple[bool, ...]
    prefix: int
    bos: str
    digits: tuple[DigitPlace | None, ...]
    notes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def digits_in_text(self) -> int:
        """How many ASCII digits the text holds, whatever tokens they ended up in."""
        return sum("0" <= character <= "9" for character in self.text)

    def first(self, count: int) -> Encoding:
        """The first `count` tokens. Places stay those of the whole text."""
        if count >= len(self):
            return self
        per_token = ("ids", "bytes_", "start", "end", "is_target", "is_special", "digits")
        end = self.end[count - 1] if count else 0
        cut: dict[str, Any] = {name: getattr(self, name)[:count] for name in per_token}
        return replace(self, text=self.text[:end], **cut)

    def shown(self) -> list[str]:
        """Each token as it is shown. An added token shows nothing of the text, so its caller names it."""
        return [show_bytes(data) for data in self.bytes_]

    def cut_characters(self) -> dict[int, tuple[str, int]]:
        """Characters split over several tokens: first token -> (the characters, number of tokens)."""
        groups: dict[int, tuple[str, int]] = {}
        first = 0
        cut: list[int] = []
        for index in range(1, len(self.ids) + 1):
            if index < len(self.ids) and self.start[index] < self.end[index - 1]:
                cut.append(self.start[index])
                continue
            if cut:
                characters = "".join(show_character(self.text[at]) for at in dict.fromkeys(cut))
                groups[first] = (characters, index - first)
            first, cut = index, []
        return groups


class TextEncoder:
    """Reads texts with one `transformers` tokenizer; safe to share between threads."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.vocabulary = Vocabulary(tokenizer)
        self._lock = threading.Lock()
        self._literal = self._parsing = None
        if getattr(tokenizer, "backend_tokenizer", None) is not None:
            self._literal = _copy(tokenizer.backend_tokenizer, literal=True)
            self._parsing = _copy(tokenizer.backend_tokenizer, literal=False)
        self._own_prefix = self._find_prefix()

    def encode(
        self, text: str, prompt: str | None = None, *, bos: str = "auto", parse_special: bool = False
    ) -> Encoding:
        """Tokenise `prompt + text` together; nothing is put between them.

        bos: "auto" follows the tokenizer's own setting, "always" puts one BOS in front, "never" none.
        parse_special: read a typed `<|endoftext|>` as the control token instead of as text.
        Raises TextError for an unknown policy.
        """
        if bos not in BOS_POLICIES:
            raise TextError(f"The BOS policy must be one of {', '.join(BOS_POLICIES)}, not {bos!r}.")
        notes: list[str] = []
        prompt, lost_prompt = mend_surrogates(prompt or "")
        response, lost_response = mend_surrogates(text)
        if lost_prompt + lost_response:
            count = lost_prompt + lost_response
            notes.append(f"{count} lone surrogate(s) in the text replaced by U+FFFD.")
        whole = prompt + response
        ids, offsets = self._ids(whole, parse_special)
        data = self._align(prompt, response, ids, offsets, notes)

        prefix, bos_note = self._prefix(bos, ids)
        ids = [*prefix, *ids]
        data = [b""] * len(prefix) + data
        ends = list(accumulate(map(len, data)))
        starts = [0, *ends][: len(ends)]
        boundary = len(prompt.encode())
        spans = _character_spans(whole, starts, ends)
        special = [i in self.vocabulary.special_ids for i in ids]
        places = digit_places(whole)
        return Encoding(
            text=whole,
            ids=tuple(ids),
            bytes_=tuple(data),
            start=tuple(start for start, _ in spans),
            end=tuple(end for _, end in spans),
            is_target=tuple(row > 0 and end > boundary for row, end in enumerate(ends)),
            is_special=tuple(special),
            prefix=len(prefix),
            bos=bos_note,
            digits=self._digits(ids, spans, places),
            notes=tuple(notes),
        )

    def _digits(
        self, ids: Sequence[int], spans: Sequence[tuple[int, int]], places: dict[int, DigitPlace]
    ) -> tuple[DigitPlace | None, ...]:
        """The digit at the end of each token of the digit set (a tokenizer that drops blanks leaves them before it)."""
        digit_of = {i: digit for digit, i in enumerate(self.vocabulary.digit_ids or ())}
        digits: list[DigitPlace | None] = []
        for i, (start, end) in zip(ids, spans, strict=True):
            place = places.get(end - 1) if end > start else None
            digits.append(place if place is not None and digit_of.get(i) == place.digit else None)
        return tuple(digits)

    def _ids(self, text: str, parse_special: bool) -> tuple[list[int], list[tuple[int, int]] | None]:
        backend = self._parsing if parse_special else self._literal
        if backend is not None:
            encoded = backend.encode(text, add_special_tokens=False)
            return list(encoded.ids), list(encoded.offsets)
        with self._lock:
            ids = self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=not parse_special)
        return list(ids), None

    def _align(
        self,
        prompt: str,
        response: str,
        ids: list[int],
        offsets: list[tuple[int, int]] | None,
        notes: list[str],
    ) -> list[bytes]:
        """The bytes of the text behind each id."""
        text = prompt + response
        spelled = [self.vocabulary.bytes_of(i) for i in ids]
        joined = b"".join(spelled)
        # SentencePiece writes a blank as "▁", and so reads a typed "▁" as a blank.
        marks = self.vocabulary.style == "sentencepiece" and "▁" in text
        wanted = (text.replace("▁", " ") if marks else text).encode()
        if joined == b" " + wanted:
            notes.append("This tokenizer puts a blank before the text; it is not shown.")
            spelled[0] = spelled[0][1:]
        elif joined != wanted:
            return _rewritten(prompt, response, spelled, offsets, notes)
        return _restore_marks(text, spelled) if marks else spelled

    def _find_prefix(self) -> list[int]:
        """What the tokenizer itself puts before a text."""
        # The first character that this vocabulary has a token for: some drop what they don't know.
        known = ((character, self._ids(character, False)[0]) for character in string.printable)
        probe, bare = next((found for found in known if found[1]), ("", []))
        if self._literal is not None:
            full = list(self._literal.encode(probe, add_special_tokens=True).ids)
        else:
            full = list(self.tokenizer.encode(probe))
        for at in range(len(full) - len(bare) + 1):
            if full[at : at + len(bare)] == bare:
                return full[:at]
        return []

    def _prefix(self, policy: str, ids: list[int]) -> tuple[list[int], str]:
        """The ids to put in front, and one sentence that says who put them there."""
        bos, eos = self.tokenizer.bos_token_id, self.tokenizer.eos_token_id
        own = self._own_prefix
        if policy == "never":
            return [], "none, as asked"
        if policy == "auto" and not own:
            return [], "none, the tokenizer's own setting"
        prefix = own or [i for i in (bos if bos is not None else eos,) if i is not None]
        if not prefix:
            return [], "none: the tokenizer has neither BOS nor EOS"
        if ids[: len(prefix)] == prefix:
            return [], "typed in the text"
        name = " ".join(str(self.tokenizer.convert_ids_to_tokens(i)) for i in prefix)
        if own:
            return prefix, f"{name}, the tokenizer's own setting"
        return prefix, f"{name}, as asked" + ("" if bos is not None else " (EOS: there is no BOS)")


def mend_surrogates(text: str) -> tuple[str, int]:
    """Join split surrogate pairs; replace lone halves by U+FFFD and count them."""
    if not any("\ud800" <= character <= "\udfff" for character in text):
        return text, 0
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return joined, joined.count("\ufffd") - text.count("\ufffd")


def _copy(backend: Any, *, literal: bool) -> Any:
    """A private copy: special tokens, truncation or padding switched on a shared tokenizer would change others' ids."""
    copy = type(backend).from_str(backend.to_str())
    copy.no_truncation()
    copy.no_padding()
    copy.encode_special_tokens = literal
    return copy


def _character_spans(text: str, starts: list[int], ends: list[int]) -> list[tuple[int, int]]:
    """Byte spans to spans of whole characters."""
    widths = np.array([len(character.encode()) for character in text], dtype=np.int64)
    of_byte = np.repeat(np.arange(len(text)), widths)
    spans = []
    for start, end in zip(starts, ends, strict=True):
        first = int(of_byte[start]) if start < len(of_byte) else len(text)
        spans.append((first, int(of_byte[end - 1]) + 1 if end > start else first))
    return spans


def _restore_marks(text: str, data: list[bytes]) -> list[bytes]:
    """Put back each typed "▁" where the tokenizer made one blank of it."""
    units = [
        unit
        for character in text
        for unit in ([character.encode()] if character == "▁" else [bytes([byte]) for byte in character.encode()])
    ]
    ends = [0, *accumulate(map(len, data))]
    return [b"".join(units[start:end]) for start, end in pairwise(ends)]


def _rewritten(
    prompt: str, response: str, spelled: list[bytes], offsets: list[tuple[int, int]] | None, notes: list[str]
) -> list[bytes]:
    """The bytes behind each token of a tokenizer whose tokens don't spell the text (case, normal forms, blanks)."""
    if offsets is not None:
        notes.append("This tokenizer rewrites the text before reading it; tokens stand where it says they came from.")
        return _bytes_by_offsets(prompt + response, spelled, offsets)
    if prompt:
        raise TextError("This tokenizer doesn't tell the prompt's tokens from the text's: score the text without one.")
    notes.append("This tokenizer rewrites the text and doesn't say where: the whole text stands at its first token.")
    return [response.encode(), *[b""] * (len(spelled) - 1)] if spelled else []


def _bytes_by_offsets(text: str, spelled: list[bytes], offsets: list[tuple[int, int]]) -> list[bytes]:
    """Cut `text` where the tokenizer's offsets say.

    What lies between two tokens belongs to the later one, but marks to the letter they stand on.
    """
    if len(offsets) > 1 and spelled[0] == b" " and offsets[1][0] == 0:
        # A blank that the tokenizer put before the text says that it came from the first character.
        offsets = [(0, 0), *offsets[1:]]
    begun = {start for start, _ in offsets}
    ends = [0]
    for _, end in offsets:
        while end < len(text) and end not in begun and unicodedata.combining(text[end]):
            end += 1
        ends.append(max(end, ends[-1]))
    if offsets:
        ends[-1] = len(text)
    data = [text[start:end].encode() for start, end in pairwise(ends)]
    row = 0
    while row < len(data):
        # Tokens that share one character come with one offset pair: the vocabulary knows who holds which bytes.
        stop = row + 1
        while stop < len(data) and not data[stop]:
            stop += 1
        if stop - row > 1 and b"".join(spelled[row:stop]) == data[row]:
            data[row:stop] = spelled[row:stop]
        row = stop
    return data
