from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import AddedToken, PreTrainedTokenizerFast

from losscore.errors import TextError
from losscore.text import TextEncoder
from losscore.text.encoding import Encoding, mend_surrogates
from tests.tiny import KINDS, characters, gpt2_like, llama2_like, smol_like, wordpiece_like

TRICKY = (
    "a😀b",
    "👩‍👩‍👧",
    "e\u0301 q\u0301 ﬁn ① ᄒ\u1161",
    "T\x10his\x00is \x07ok\x1b[31m",
    "abc שלום 123 def \u202eevil\u200b\u200d\ufeff",
    " \n\n\t  x",
    "a▁b Ġ a   b",
    "▁410",
    "x != y , z .",
    "a\r\nb\r\n",
    "10² ½ 五 ٣٤ １２ 𝟙",
    "한국어 텍스트 12.5",
    "\u0301\u0302",
    "\ufffd",
)
anything = st.text(st.characters(), max_size=20) | st.lists(st.sampled_from(TRICKY), max_size=2).map("".join)


@cache
def encoder(kind: str) -> TextEncoder:
    return TextEncoder(KINDS[kind]())


def check(encoding: Encoding, text: str) -> None:
    """What holds of every text, whatever the tokenizer."""
    assert encoding.text == text
    rows = len(encoding.ids)
    for name in ("bytes_", "start", "end", "is_target", "is_special", "digits"):
        assert len(getattr(encoding, name)) == rows
    if rows > encoding.prefix:
        assert b"".join(encoding.bytes_) == text.encode()
    for start, end in zip(encoding.start, encoding.end, strict=True):
        assert 0 <= start <= end <= len(text)
    assert list(encoding.start) == sorted(encoding.start)
    assert "\ufffd" in text or "\ufffd" not in "".join(encoding.shown())


@pytest.mark.parametrize("kind", KINDS)
@given(text=anything)
@example(text="")
@example(text="\ud83d\ude00 \ud83d b \ude00")
def test_bytes_are_the_truth(kind: str, text: str) -> None:
    encoding = encoder(kind).encode(text, bos="never")
    mended, _ = mend_surrogates(text)
    check(encoding, mended)
    unknown = encoder(kind).tokenizer.unk_token_id
    assert not any(special and i != unknown for i, special in zip(encoding.ids, encoding.is_special, strict=True))
    for data, start, end in zip(encoding.bytes_, encoding.start, encoding.end, strict=True):
        assert data in mended[start:end].encode()


@pytest.mark.parametrize("kind", ["smol", "gpt2", "llama2"])
@given(text=anything)
def test_the_ids_are_the_tokenizers_own(kind: str, text: str) -> None:
    mended, _ = mend_surrogates(text)
    tokenizer = KINDS[kind]()
    expected = tokenizer(mended, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert list(encoder(kind).encode(text).ids) == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TRICKY)
def test_tricky_texts(kind: str, text: str) -> None:
    check(encoder(kind).encode(text), text)


@given(text=st.text(st.characters(), max_size=30))
@example("\ufffd\ud83d\ud83d\ude00\ude00\ufffd")
def test_surrogates_are_joined_or_replaced_and_counted(text: str) -> None:
    mended, lost = mend_surrogates(text)
    expected, count, index = "", 0, 0
    while index < len(text):
        code = ord(text[index])
        following = ord(text[index + 1]) if index + 1 < len(text) else 0
        if 0xD800 <= code < 0xDC00 <= following < 0xE000:
            expected += chr(0x10000 + ((code - 0xD800) << 10) + (following - 0xDC00))
            index += 2
            continue
        lone = 0xD800 <= code < 0xE000
        expected += "\ufffd" if lone else text[index]
        count += lone
        index += 1
    assert (mended, lost) == (expected, count)


def test_lone_surrogates_are_noted() -> None:
    encoding = encoder("smol").encode("a\ud83d b", "\ude00")
    assert encoding.text == "\ufffda\ufffd b"
    assert encoding.notes == ("2 lone surrogate(s) in the text replaced by U+FFFD.",)


def test_a_cut_emoji_is_two_rows_of_bytes_and_one_character() -> None:
    encoding = encoder("gpt2").encode("a😀b")
    assert encoding.bytes_ == (b"a", b"\xf0", b"\x9f", b"\x98", b"\x80", b"b")
    assert encoding.start == (0, 1, 1, 1, 1, 2)
    assert encoding.end == (1, 2, 2, 2, 2, 3)
    assert encoding.shown() == ["a", "⟨F0⟩", "⟨9F⟩", "⟨98⟩", "⟨80⟩", "b"]
    assert encoding.cut_characters() == {1: ("😀", 4)}


def test_characters_cut_in_a_chain_are_one_group() -> None:
    encoding = Encoding(
        text="é😀x",
        ids=(1, 2, 3, 4),
        bytes_=(b"\xc3", b"\xa9\xf0\x9f", b"\x98\x80", b"x"),
        start=(0, 0, 1, 2),
        end=(1, 2, 2, 3),
        is_target=(False, True, True, True),
        is_special=(False,) * 4,
        prefix=0,
        bos="",
        digits=(None,) * 4,
        notes=(),
    )
    assert encoding.cut_characters() == {0: ("é😀", 3)}
    assert encoding.shown() == ["⟨C3⟩", "⟨A9 F0 9F⟩", "⟨98 80⟩", "x"]


def test_a_zero_width_joiner_family_shows_each_character_once() -> None:
    encoding = encoder("smol").encode("👩‍👩‍👧")
    assert len(encoding) == 18
    shown = "".join(characters for characters, _ in encoding.cut_characters().values())
    assert shown == "👩⟨U+200D⟩👩⟨U+200D⟩👧"


# BOS --------------------------------------------------------------------------------------------------------------


def test_auto_follows_the_tokenizer() -> None:
    without = TextEncoder(smol_like()).encode("the river")
    assert without.prefix == 0
    assert without.bos == "none, the tokenizer's own setting"
    withal = TextEncoder(smol_like(bos=True)).encode("the river")
    bos = smol_like(bos=True).bos_token_id
    assert withal.ids == (bos, *without.ids)
    assert withal.prefix == 1
    assert withal.bos == "<|start|>, the tokenizer's own setting"
    assert withal.bytes_[0] == b""
    assert (withal.start[0], withal.end[0]) == (0, 0)
    assert withal.is_special[0]


def test_always_and_never() -> None:
    encode = TextEncoder(smol_like(bos=True)).encode
    assert encode("the river", bos="always").ids == encode("the river").ids
    never = encode("the river", bos="never")
    assert never.prefix == 0
    assert never.ids == encode("the river").ids[1:]
    assert never.bos == "none, as asked"


def test_always_without_a_bos_takes_the_eos_and_says_so() -> None:
    encoding = encoder("gpt2").encode("the river", bos="always")
    assert encoding.ids[0] == gpt2_like().eos_token_id
    assert encoding.bos == "<|endoftext|>, as asked (EOS: there is no BOS)"


def test_always_with_neither_stays_bare_and_says_so() -> None:
    encoding = encoder("wordpiece").encode("the river", bos="always")
    assert encoding.prefix == 0
    assert encoding.bos == "none: the tokenizer has neither BOS nor EOS"


def test_a_bos_the_tokenizer_knows_but_does_not_add() -> None:
    encode = TextEncoder(llama2_like()).encode
    assert encode("the river").prefix == 0
    assert encode("the river", bos="always").ids[0] == llama2_like().bos_token_id
    assert encode("the river", bos="always").bos == "<s>, as asked"


@pytest.mark.parametrize("policy", ["auto", "always"])
def test_never_twice(policy: str) -> None:
    encoding = TextEncoder(smol_like(bos=True)).encode("<|start|>the river", bos=policy, parse_special=True)
    bos = smol_like(bos=True).bos_token_id
    assert encoding.ids[0] == bos
    assert encoding.ids.count(bos) == 1
    assert encoding.bos == "typed in the text"
    assert encoding.prefix == 0
    assert encoding.bytes_[0] == b"<|start|>"
    assert not encoding.is_target[0]


def test_unknown_policy_is_refused() -> None:
    with pytest.raises(TextError, match="auto, always, never"):
        encoder("smol").encode("a", bos="sometimes")


# Special tokens ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["smol", "gpt2", "composing"])
def test_typed_control_tokens_are_text_until_parsing_is_asked_for(kind: str) -> None:
    text = "a <|endoftext|> b"
    literal = encoder(kind).encode(text)
    parsed = encoder(kind).encode(text, parse_special=True)
    eos = KINDS[kind]().eos_token_id
    check(literal, text)
    check(parsed, text)
    assert eos not in literal.ids
    assert not any(literal.is_special)
    assert parsed.ids.count(eos) == 1
    assert [data for data, special in zip(parsed.bytes_, parsed.is_special, strict=True) if special] == [
        b"<|endoftext|>"
    ]
    # Scored like any other token, and so is what follows it.
    assert all(parsed.is_target[1:])


def test_typed_control_tokens_of_sentencepiece() -> None:
    text = "a</s>b"
    assert 2 not in encoder("llama2").encode(text).ids
    parsed = encoder("llama2").encode(text, parse_special=True)
    check(parsed, text)
    assert parsed.bytes_[parsed.ids.index(2)] == b"</s>"


def test_the_shared_tokenizer_is_left_alone() -> None:
    tokenizer = smol_like()
    before = tokenizer.backend_tokenizer.to_str(), tokenizer.backend_tokenizer.encode_special_tokens
    TextEncoder(tokenizer).encode("a <|endoftext|> b", parse_special=True)
    assert (tokenizer.backend_tokenizer.to_str(), tokenizer.backend_tokenizer.encode_special_tokens) == before


def test_truncation_and_padding_of_the_shared_tokenizer_do_not_reach_a_text() -> None:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=type(gpt2_like().backend_tokenizer).from_str(gpt2_like().backend_tokenizer.to_str())
    )
    tokenizer.backend_tokenizer.enable_truncation(3)
    tokenizer.backend_tokenizer.enable_padding(length=50)
    assert TextEncoder(tokenizer).encode("the river near").ids == encoder("gpt2").encode("the river near").ids


def test_an_added_token_that_swallows_blanks_loses_none_of_them() -> None:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=type(gpt2_like().backend_tokenizer).from_str(gpt2_like().backend_tokenizer.to_str())
    )
    tokenizer.add_tokens([AddedToken("<|tag|>", lstrip=True, rstrip=True, special=False)])
    text = "a   <|tag|>   x"
    encoding = TextEncoder(tokenizer).encode(text)
    check(encoding, text)
    assert tokenizer.convert_tokens_to_ids("<|tag|>") in encoding.ids


# Prompt and response ----------------------------------------------------------------------------------------------


def test_prompt_and_response_are_tokenised_together() -> None:
    joined = encoder("gpt2").encode(" the river is near")
    split = encoder("gpt2").encode(" river is near", " the")
    assert split.ids == joined.ids
    assert split.text == joined.text
    assert split.is_target == (False, True, True, True)


def test_a_token_is_a_target_when_its_last_byte_lies_in_the_response() -> None:
    whole = encoder("gpt2").encode(" the river is near")
    assert whole.shown() == ["·the", "·river", "·is", "·near"]
    for boundary in range(len(whole.text) + 1):
        prompt, response = whole.text[:boundary], whole.text[boundary:]
        encoding = encoder("gpt2").encode(response, prompt)
        expected = [row > 0 and end > boundary for row, end in enumerate(encoding.end)]
        assert list(encoding.is_target) == expected


def test_a_token_that_straddles_the_boundary_is_a_target() -> None:
    encoding = encoder("gpt2").encode("ver", " the ri")
    assert encoding.shown() == ["·the", "·river"]
    assert encoding.is_target == (False, True)


def test_a_character_that_straddles_the_boundary() -> None:
    # Halves of a surrogate pair are replaced apiece: no character ever stands on both sides.
    encoding = encoder("smol").encode("\ude00b", "a\ud83d")
    assert encoding.text == "a\ufffd\ufffdb"
    assert encoding.is_target == (False, False, False, False, True, True, True, True)


def test_with_a_bos_the_first_token_of_the_text_is_a_target() -> None:
    encoding = encoder("gpt2").encode(" the river", bos="always")
    assert encoding.is_target == (False, True, True)
    prompted = encoder("gpt2").encode(" river", " the", bos="always")
    assert prompted.is_target == (False, False, True)


def test_empty_response_has_no_targets_and_empty_prompt_is_none() -> None:
    assert not any(encoder("smol").encode("", "the river").is_target)
    assert encoder("smol").encode("the river", "") == encoder("smol").encode("the river")


@given(prompt=anything, response=anything)
def test_targets_cover_the_response(prompt: str, response: str) -> None:
    encoding = encoder("smol").encode(response, prompt, bos="always")
    mended = mend_surrogates(response)[0].encode()
    scored = b"".join(data for data, used in zip(encoding.bytes_, encoding.is_target, strict=True) if used)
    assert scored.endswith(mended)


# SentencePiece and normalising tokenizers -------------------------------------------------------------------------


def test_the_blank_put_before_the_text_is_not_the_persons() -> None:
    plain, blank = encoder("llama2").encode("overheard"), encoder("llama2").encode(" overheard")
    assert b"".join(plain.bytes_) == b"overheard"
    assert b"".join(blank.bytes_) == b" overheard"
    assert plain.notes == blank.notes == ("This tokenizer puts a blank before the text; it is not shown.",)


def test_the_blank_before_a_number_has_no_place() -> None:
    encoding = encoder("llama2").encode("410")
    assert encoding.bytes_ == (b"", b"4", b"1", b"0")
    assert [digit and digit.place for digit in encoding.digits] == [None, 2, 1, 0]
    assert encoding.is_target == (False, True, True, True)
    inside = encoder("llama2").encode("there are 410 people")
    assert [digit.place for digit in inside.digits if digit] == [2, 1, 0]


def test_byte_tokens_of_sentencepiece_stand_for_their_bytes() -> None:
    encoding = encoder("llama2").encode("a😀")
    assert encoding.bytes_ == (b"a", b"\xf0", b"\x9f", b"\x98", b"\x80")
    assert encoding.notes == ("This tokenizer puts a blank before the text; it is not shown.",)


@pytest.mark.parametrize("text", ["a▁b", "▁", "410▁", "▁ ▁😀▁", " ▁"])
def test_a_typed_blank_mark_is_shown_as_itself(text: str) -> None:
    encoding = encoder("llama2").encode(text)
    check(encoding, text)
    assert "".join(encoding.shown()).count("▁") == text.count("▁")
    assert sum(digit is not None for digit in encoding.digits) == encoding.digits_in_text


def test_a_normalising_tokenizer_keeps_spans_inside_the_text_and_says_so() -> None:
    text = "ﬁn e\u0301 ① ᄒ\u1161"
    encoding = encoder("wordpiece").encode(text)
    check(encoding, text)
    assert encoding.notes == (
        "This tokenizer rewrites the text before reading it; tokens stand where it says they came from.",
    )


def test_a_mark_stays_with_its_letter_under_a_composing_tokenizer() -> None:
    encoding = encoder("composing").encode("e\u0301 x")
    check(encoding, "e\u0301 x")
    assert encoding.bytes_[0] == "e\u0301".encode()
    # Both bytes of the composed letter are predicted, and both count.
    assert all(encoding.is_target[1:])


def test_the_blank_before_a_rewritten_text_takes_no_digit() -> None:
    encoding = encoder("compatible").encode("7 ﬁ")
    check(encoding, "7 ﬁ")
    assert encoding.bytes_[:2] == (b"", b"7")
    assert [digit for digit in encoding.digits if digit] == [(7, 0)]
    # "ﬁ" is read as two letters: the first holds it, the second is a target all the same.
    assert encoding.bytes_[-2:] == ("ﬁ".encode(), b"")
    assert encoding.is_target == (False, *[True] * (len(encoding) - 1))


def test_digits_of_a_tokenizer_that_drops_blanks() -> None:
    encoding = encoder("wordpiece").encode("a 7 ７ ⑦")
    assert [(d.digit, d.place) for d in encoding.digits if d] == [(7, 0)]
    assert encoding.digits_in_text == 1


def test_a_tokenizer_without_offsets_reads_plain_text_exactly() -> None:
    encoding = TextEncoder(characters()).encode("x = 7, y=7", "so ")
    assert b"".join(encoding.bytes_) == b"so x = 7, y=7"
    assert encoding.is_target == (False,) * 3 + (True,) * 10
    assert [digit.place for digit in encoding.digits if digit] == [0, 0]


def test_a_tokenizer_without_offsets_that_rewrites_says_so() -> None:
    encode = TextEncoder(characters(fold=True)).encode
    encoding = encode("Hello")
    assert encoding.bytes_ == (b"Hello", b"", b"", b"", b"")
    assert all(encoding.is_target[1:])
    assert "doesn't say where" in encoding.notes[0]
    with pytest.raises(TextError, match="without one"):
        encode("Hello", "Prompt")


# Digits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["smol", "gpt2", "llama2", "wordpiece"])
def test_the_digit_set_is_the_ten_ids_that_decode_to_one_digit(kind: str) -> None:
    tokenizer = KINDS[kind]()
    ids = encoder(kind).vocabulary.digit_ids
    assert ids is not None
    assert [tokenizer.decode([i]) for i in ids] == list("0123456789")


def test_no_digit_set_unless_all_ten_exist() -> None:
    from tokenizers import Tokenizer, models

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({str(d): d for d in range(9)} | {"x": 9}, unk_token="x"))
    )
    encoder = TextEncoder(tokenizer)
    assert encoder.vocabulary.digit_ids is None
    assert encoder.encode("7").digits == (None,)


def test_single_digits_are_covered_and_merged_digits_are_not() -> None:
    smol = encoder("smol").encode("there are 410 people in 2024")
    assert sum(digit is not None for digit in smol.digits) == smol.digits_in_text == 7
    merged = encoder("gpt2").encode(" the 12 people in 2024, x=7")
    assert "·2024" in merged.shown()
    assert [digit for digit in merged.digits if digit] == [(7, 0)]
    assert merged.digits_in_text == 7


def test_a_blank_and_a_digit_in_one_token_is_not_a_digit() -> None:
    tokenizer = gpt2_like()
    encoding = encoder("gpt2").encode("cost 8 and 8")
    with_blank = [row for row, shown in enumerate(encoding.shown()) if shown == "·8"]
    assert with_blank
    assert tokenizer.convert_tokens_to_ids("Ġ8") not in (encoder("gpt2").vocabulary.digit_ids or ())
    assert all(encoding.digits[row] is None for row in with_blank)


def test_words_that_parse_as_floats_have_no_digits() -> None:
    encoding = encoder("smol").encode("inf nan Infinity 10² ٣ １")
    assert [digit.place for digit in encoding.digits if digit] == [1, 0]
    assert encoding.digits_in_text == 2


# Cutting, threads, size -------------------------------------------------------------------------------------------


def test_the_first_tokens_keep_the_places_of_the_whole_text() -> None:
    whole = encoder("smol").encode("is 12345")
    cut = whole.first(len(whole) - 3)
    assert cut.text == "is 12"
    assert [digit.place for digit in cut.digits if digit] == [4, 3]
    assert cut.digits_in_text == 2
    check(cut, "is 12")
    assert whole.first(99) is whole


def test_many_threads_one_encoder() -> None:
    texts = [f"the river {n} is {n * n}" for n in range(50)] * 4

    def ids(text: str) -> Any:
        return encoder("smol").encode(text, parse_special=len(text) % 2 == 0).ids

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ids, texts)) == [ids(text) for text in texts]


@pytest.mark.parametrize("kind", ["smol", "llama2", "wordpiece"])
def test_a_long_text_is_read_in_time(kind: str) -> None:
    text = ("a" * 5_000 + " 12.5 😀 ") * 10
    check(encoder(kind).encode(text), text)


@pytest.mark.embedded
@pytest.mark.parametrize("text", [*TRICKY, "a <|endoftext|> b", "1234567 0.05 192.168.0.1"])
def test_the_embedded_tokenizer(embedded: Any, text: str) -> None:
    encoding = embedded.encoder.encode(text)
    check(encoding, text)
    assert not any(encoding.is_special)
    assert sum(digit is not None for digit in encoding.digits) == encoding.digits_in_text
    parsed = embedded.encoder.encode(text, parse_special=True)
    check(parsed, text)
    assert sum(parsed.is_special) == text.count("<|endoftext|>")


def test_wordpiece_spells_continuations_without_their_mark() -> None:
    vocabulary = TextEncoder(wordpiece_like()).vocabulary
    table = wordpiece_like().get_vocab()
    piece = next(piece for piece in table if piece.startswith("##"))
    assert vocabulary.bytes_of(table[piece]) == piece[2:].encode()


def test_an_id_without_a_spelling_has_no_bytes() -> None:
    assert encoder("smol").vocabulary.bytes_of(10_000_000) == b""
