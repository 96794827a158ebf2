"""Number-like text from a grammar, against a reader that works from the values of the numbers."""

from __future__ import annotations

from decimal import Decimal, getcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from losscore.text import TextEncoder, digit_places
from tests.hard.vocabularies import EVERY, EXACT

getcontext().prec = 2_000
digits = st.text("0123456789", min_size=1, max_size=9)
integer = digits | st.sampled_from(["0", "007", "000", "10" * 40])
decimal = st.tuples(digits | st.just(""), digits).map(".".join)
version = st.lists(digits | st.just(""), min_size=3, max_size=5).map(".".join).filter(lambda text: text[-1] != ".")
number = integer | decimal | version
sign = st.sampled_from(["", "-", "+", "−", "±", "$", "№", "#", "x=", "½", "٣"])
ending = st.sampled_from(
    ["", ".", "...", ".)", "%", "²", "e", "E-", "e+", ",", "'", "−", "–", ":", "/", "１", "th", "\u066b"]
)
joint = st.sampled_from([" ", ", ", "-", "–", "\n", ":", "/", ",", "'", "\u00a0", "\u2009", "_", "x", "，", "．", "٬"])
sentence = st.lists(st.tuples(sign, number, ending, joint), max_size=6)


def groups_of(number: str) -> list[str]:
    """The numbers that one run of digits and dots stands for: itself, or each group where it has two dots or more."""
    return [group for group in number.split(".") if group] if number.count(".") > 1 else [number]


def steps(group: str) -> list[tuple[int, Fraction]]:
    """For each digit: itself, and by how much the number's value falls when it is set to nought, a digit's worth."""
    found = []
    for at, character in enumerate(group):
        if character == ".":
            continue
        up, down = (Decimal(f"0{group[:at]}{other}{group[at + 1 :]}") for other in "10")
        found.append((int(character), Fraction(up) - Fraction(down)))
    return found


@given(sentence)
def test_each_digit_is_worth_what_the_number_changes_by(parts: list[tuple[str, str, str, str]]) -> None:
    text, expected = "", []
    for before, number, after, between in parts:
        # Where a dot or a digit of the one ran into the other, the two would be one run.
        glue = " " if after.endswith(".") and between == "." else ""
        text += before + number + after + glue + between
        expected += [step for group in groups_of(number) for step in steps(group)]
    places = digit_places(text)
    assert list(places) == [at for at, character in enumerate(text) if character in "0123456789"]
    assert [(digit, Fraction(10) ** place) for digit, place in places.values()] == expected


@given(st.lists(number, min_size=1, max_size=4))
def test_the_places_add_up_to_the_number(numbers: list[str]) -> None:
    text = " ".join(numbers)
    total = sum((digit * Decimal(10) ** place for digit, place in digit_places(text).values()), Decimal(0))
    assert total == sum((Decimal(group) for number in numbers for group in groups_of(number)), Decimal(0))


@given(number, st.sampled_from(["", ".", ". ", ".\n", "..", ".a", ".5", "7", ".5.1"]))
def test_the_verdict_follows_the_text_that_follows(number: str, more: str) -> None:
    before, after = digit_places(number), digit_places(number + more)
    kept = {at: place for at, place in after.items() if at < len(number)}
    if not more.strip(". \na"):
        assert kept == before
    # Whatever follows, each is what the whole run says.
    run = (number + more).rstrip(". \na")
    expected = [step for group in groups_of(run) for step in steps(group)]
    assert [(digit, Fraction(10) ** place) for digit, place in after.values()] == expected


@pytest.mark.parametrize("kind", EXACT)
@given(parts=sentence)
def test_every_tokenizer_reads_the_same_places(kind: str, parts: list[tuple[str, str, str, str]]) -> None:
    text = "".join(part for parts_ in parts for part in parts_)
    encoder = TextEncoder(EVERY[kind]())
    encoding, places = encoder.encode(text, bos="never"), digit_places(text)
    digit_ids = encoder.vocabulary.digit_ids or ()
    for row, (i, digit) in enumerate(zip(encoding.ids, encoding.digits, strict=True)):
        if i in digit_ids:
            assert digit == places[encoding.end[row] - 1]
            assert encoding.bytes_[row] == str(digit_ids.index(i)).encode()
        else:
            assert digit is None
    assert sum(digit is not None for digit in encoding.digits) <= encoding.digits_in_text == len(places)


def test_a_token_of_several_digits_is_no_digit() -> None:
    encoding = TextEncoder(EVERY["gpt2"]()).encode("in 2024 the 12 boxes, x=7")
    several = [row for row, data in enumerate(encoding.bytes_) if len(data.strip()) > 1 and data.strip().isdigit()]
    assert several
    assert all(encoding.digits[row] is None for row in several)
    assert [digit for digit in encoding.digits if digit] == [(7, 0)]
