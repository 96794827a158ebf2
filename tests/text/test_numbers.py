from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from losscore.text import digit_places

DIGITS = "0123456789"


def slow_places(text: str) -> dict[int, tuple[int, int]]:
    """Read character by character: for each digit, look left and right until its run ends."""
    found = {}
    for index, character in enumerate(text):
        if character not in DIGITS:
            continue
        left, right = index, index
        while left > 0 and text[left - 1] in DIGITS + ".":
            left -= 1
        while right + 1 < len(text) and text[right + 1] in DIGITS + ".":
            right += 1
        while text[right] == ".":
            right -= 1
        dots = [at for at in range(left, right + 1) if text[at] == "."]
        if len(dots) == 1 and index > dots[0]:
            found[index] = (int(character), dots[0] - index)
            continue
        place = 0
        while index + place + 1 < len(text) and text[index + place + 1] in DIGITS:
            place += 1
        found[index] = (int(character), place)
    return found


@given(st.text(alphabet="0123456789..-,e x²１", max_size=40))
@example("1.2.3")
@example("..5.")
@example("5.")
def test_places_are_those_of_a_slow_reader(text: str) -> None:
    assert digit_places(text) == slow_places(text)


@given(
    st.from_regex(r"[0-9]{1,12}(\.[0-9]{1,12})?|\.[0-9]{1,12}", fullmatch=True), st.sampled_from(["", ".", " ", ","])
)
def test_digits_times_places_are_the_number(number: str, after: str) -> None:
    total = sum(digit * Decimal(10) ** place for digit, place in digit_places(f"n={number}{after}").values())
    assert total == Decimal(number)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12.34", {0: (1, 1), 1: (2, 0), 3: (3, -1), 4: (4, -2)}),
        ("0.05", {0: (0, 0), 2: (0, -1), 3: (5, -2)}),
        (".5", {1: (5, -1)}),
        ("rose .5 percent in 2015. Then 3.", {6: (5, -1), 19: (2, 3), 20: (0, 2), 21: (1, 1), 22: (5, 0), 30: (3, 0)}),
        ("5.", {0: (5, 0)}),
        ("(at 5.)", {4: (5, 0)}),
        ("The answer is 42.", {14: (4, 1), 15: (2, 0)}),
        ("42.5", {0: (4, 1), 1: (2, 0), 3: (5, -1)}),
        ("1.2.3", {0: (1, 0), 2: (2, 0), 4: (3, 0)}),
        ("v3.11.2", {1: (3, 0), 3: (1, 1), 4: (1, 0), 6: (2, 0)}),
        ("12:30", {0: (1, 1), 1: (2, 0), 3: (3, 1), 4: (0, 0)}),
        ("1,234", {0: (1, 0), 2: (2, 2), 3: (3, 1), 4: (4, 0)}),
        ("1'234", {0: (1, 0), 2: (2, 2), 3: (3, 1), 4: (4, 0)}),
        ("1,2,3", {0: (1, 0), 2: (2, 0), 4: (3, 0)}),
        ("-5 −5", {1: (5, 0), 4: (5, 0)}),
        ("3-2 4–15", {0: (3, 0), 2: (2, 0), 4: (4, 0), 6: (1, 1), 7: (5, 0)}),
        ("x=-0.23", {3: (0, 0), 5: (2, -1), 6: (3, -2)}),
        ("6.02e23", {0: (6, 0), 2: (0, -1), 3: (2, -2), 5: (2, 1), 6: (3, 0)}),
        ("1E-5 2e", {0: (1, 0), 3: (5, 0), 5: (2, 0)}),
        ("10² ½ 五 ٣٤ １２ 𝟙", {0: (1, 1), 1: (0, 0)}),
        ("inf nan Infinity 1e", {17: (1, 0)}),
        ("....", {}),
        ("", {}),
    ],
)
def test_cases_that_broke_other_tools(text: str, expected: dict[int, tuple[int, int]]) -> None:
    assert digit_places(text) == expected


def test_seven_digits_and_sixteen() -> None:
    assert [place for _, place in digit_places("1234567").values()] == [6, 5, 4, 3, 2, 1, 0]
    assert [place for _, place in digit_places("1234567890123456").values()] == list(range(15, -1, -1))


def test_thousands_and_decimals_together() -> None:
    places = digit_places("1,234,567.89")
    assert [place for _, place in places.values()] == [0, 2, 1, 0, 2, 1, 0, -1, -2]


def test_the_places_of_a_group_depend_on_what_follows_it() -> None:
    assert digit_places("1234")[0].place == 3
    assert digit_places("12345")[0].place == 4


@pytest.mark.timeout(60)  # a reader that looks back over the run at each digit takes an hour
@pytest.mark.parametrize("text", ["7" * 300_000, "7." * 150_000, "." * 300_000, "1." + "7" * 300_000])
def test_a_very_long_run_is_read(text: str) -> None:
    places = digit_places(text)
    assert len(places) == sum(character in DIGITS for character in text)
