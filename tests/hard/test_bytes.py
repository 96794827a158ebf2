"""Any text, any tokenizer: the tokens' bytes are the text's, and nothing is shown that was not typed."""

from __future__ import annotations

import unicodedata
from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import AddedToken, PreTrainedTokenizerFast

from losscore.text import TextEncoder
from losscore.text.encoding import Encoding, mend_surrogates
from tests.hard.vocabularies import EVERY, EXACT, dropping, gemma_like
from tests.tiny import gpt2_like

# Surrogates, controls, marks, overrides and private use come up as often as letters.
odd = st.characters(categories=["Cs", "Cc", "Cf", "Co", "Cn", "Mn", "Zs", "Zl", "Zp"])
texts = st.text(st.one_of(st.characters(), odd, st.sampled_from("a 7.▁Ġ\n<>|")), max_size=24)


@cache
def encoder(kind: str) -> TextEncoder:
    return TextEncoder(EVERY[kind]())


def assert_true_to(encoding: Encoding, text: str) -> None:
    """`text` without lone surrogates."""
    assert encoding.text == text
    own = encoding.ids[encoding.prefix :]
    columns = ("bytes_", "start", "end", "is_target", "is_special", "digits")
    assert {len(getattr(encoding, name)) for name in columns} == {len(encoding)}
    assert len(encoding.shown()) == len(encoding)
    assert b"".join(encoding.bytes_) == (text.encode() if own else b"")
    assert not any(encoding.bytes_[: encoding.prefix])
    assert list(encoding.start) == sorted(encoding.start)
    assert all(0 <= start <= end <= len(text) for start, end in zip(encoding.start, encoding.end, strict=True))
    for data, start, end in zip(encoding.bytes_, encoding.start, encoding.end, strict=True):
        assert data in text[start:end].encode()
    shown = "".join(encoding.shown())
    assert shown.count("\ufffd") <= text.count("\ufffd")
    # A blank stands only between the bytes of a cut character, and nothing invisible is left.
    assert all(character == " " or unicodedata.category(character)[0] not in "CZ" for character in shown)
    for digit, end in zip(encoding.digits, encoding.end, strict=True):
        assert digit is None or text[end - 1] == str(digit.digit)


@pytest.mark.parametrize("kind", EVERY)
@given(text=texts)
@example(text="\ud83d\ude00 \ud83d b \ude00")
@example(text="a  b   c\n\n\nd <td> ")
@example(text="\ufeff\u202eevil\u202c e\u0301\u0301 ﬁ ㌀ İ ẞ")
def test_whatever_is_typed(kind: str, text: str) -> None:
    assert_true_to(encoder(kind).encode(text), mend_surrogates(text)[0])


@pytest.mark.parametrize("kind", EVERY)
@given(prompt=texts, text=texts)
def test_whatever_is_typed_after_whatever_prompt(kind: str, prompt: str, text: str) -> None:
    encoding = encoder(kind).encode(text, prompt, bos="always", parse_special=True)
    whole = mend_surrogates(prompt)[0] + mend_surrogates(text)[0]
    assert_true_to(encoding, whole)
    boundary = len(mend_surrogates(prompt)[0].encode())
    ends = [sum(map(len, encoding.bytes_[: row + 1])) for row in range(len(encoding))]
    assert list(encoding.is_target) == [row > 0 and end > boundary for row, end in enumerate(ends)]


@pytest.mark.parametrize(("kind", "text"), [("gemma", " "), ("smol", "7"), ("llama2", "\u0301"), ("gpt2", "a")])
def test_a_hundred_thousand_times_the_same(kind: str, text: str) -> None:
    run = text * 100_000
    encoding = encoder(kind).encode(run)
    assert b"".join(encoding.bytes_) == run.encode()
    assert len(encoding) == len(encoding.bytes_) == len(encoding.digits)
    assert list(encoding.start) == sorted(encoding.start)
    assert max(encoding.end) == len(run)
    assert [digit.place for digit in encoding.digits if digit] == list(range(99_999, -1, -1)) * (text == "7")


@pytest.mark.parametrize("kind", EVERY)
def test_a_hundred_thousand_odd_characters_have_their_rows(kind: str) -> None:
    run = "".join(character * 20_000 for character in ("C", "\u202e", "😀", "\ud83d", "\x00"))
    encoding, text = encoder(kind).encode(run), mend_surrogates(run)[0]
    assert b"".join(encoding.bytes_) == text.encode()
    assert len(encoding) == len(encoding.bytes_) == len(encoding.start) == len(encoding.shown())
    assert "".join(encoding.shown()).count("\ufffd") <= text.count("\ufffd") == 20_000


@given(text=texts)
def test_tokens_that_spell_bytes_are_never_said_to_rewrite(text: str) -> None:
    for kind in EXACT:
        encoding = encoder(kind).encode(text, bos="never")
        assert not any("rewrites" in note for note in encoding.notes), kind
        assert sum(map(len, encoding.bytes_)) == len(encoding.text.encode())


def test_runs_of_blanks_that_are_added_tokens_are_blanks() -> None:
    encoding = encoder("gemma").encode("a  b   c\n\nd ▁▁<td>")
    assert [shown for shown in encoding.shown() if "··" in shown] == ["··", "···"]
    assert b"".join(encoding.bytes_).decode() == "a  b   c\n\nd ▁▁<td>"
    assert encoding.notes == ()
    assert gemma_like().convert_tokens_to_ids("▁▁") in encoding.ids


@pytest.mark.parametrize("text", ["   <|tag|>   x", "<|tag|>", "a<|tag|> <|tag|>b", "\n <|tag|>\t"])
@pytest.mark.parametrize("special", [True, False])
def test_added_tokens_that_swallow_blanks_keep_them(text: str, special: bool) -> None:
    backend = gpt2_like().backend_tokenizer
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=type(backend).from_str(backend.to_str()))
    tokenizer.add_tokens([AddedToken("<|tag|>", lstrip=True, rstrip=True, special=special)], special_tokens=special)
    encoding = TextEncoder(tokenizer).encode(text, parse_special=True)
    assert_true_to(encoding, text)
    tag = tokenizer.convert_tokens_to_ids("<|tag|>")
    assert encoding.ids.count(tag) == text.count("<|tag|>")
    assert [i == tag and special for i in encoding.ids] == list(encoding.is_special)


def test_cleaning_up_decoded_text_is_no_business_of_the_rows() -> None:
    backend = gpt2_like().backend_tokenizer
    cleaning = PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=True)
    text = "x != y , z . it 's n't"
    assert_true_to(TextEncoder(cleaning).encode(text), text)
    assert TextEncoder(cleaning).encode(text) == encoder("gpt2").encode(text)


def test_the_prefix_is_found_where_most_letters_are_unknown() -> None:
    encoding = TextEncoder(dropping()).encode("GaCC")
    assert encoding.ids == (4, 1, 0, 0)
    assert encoding.prefix == 1
    assert encoding.bos == "<s>, the tokenizer's own setting"
    assert b"".join(encoding.bytes_) == b"GaCC"


@pytest.mark.parametrize("text", ["a\u0301\u0302", "👩‍👩‍👧", "한ᄒ\u1161", "\u0e01\u0e33", "क\u093c\u093e"], ids=ascii)
@pytest.mark.parametrize("kind", ["smol", "llama2", "gemma", "unigram, no blank, bytes"])
def test_each_character_is_shown_once_and_each_token_has_its_row(kind: str, text: str) -> None:
    encoding = encoder(kind).encode(text, bos="never")
    groups = encoding.cut_characters()
    inside = {row for first, (_, count) in groups.items() for row in range(first, first + count)}
    whole = [text[encoding.start[row] : encoding.end[row]] for row in range(len(encoding)) if row not in inside]
    cut = [text[encoding.start[first] : encoding.end[first + count - 1]] for first, (_, count) in groups.items()]
    assert sorted("".join([*whole, *cut])) == sorted(text)
