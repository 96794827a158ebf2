from __future__ import annotations

import math

import numpy as np
import pytest

from losscore.lanes import LANES
from losscore.lanes.lane import DEFT, DEL, ENTROPY, RANK, RANKTUNER, P, format_value
from losscore.lanes.page import strip_style


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (2.0, "2"),
        (0.8384, "0.838"),
        (0.5, "0.500"),
        (12.345, "12.3"),
        (123.4, "123"),
        (999.4, "999"),
        (999.7, "1,000"),
        (1234.5, "1,234"),
        (49152.0, "49,152"),
        (999_999.7, "1,000,000"),
        (1e6, "1.0e6"),
        (2.5e11, "2.5e11"),
        (1.8e-48, "1.8e-48"),
        (0.00012, "1.2e-4"),
        (0.001, "0.00100"),
        (-3.25, "-3.25"),
        (math.inf, "inf"),
    ],
)
def test_numbers_are_short(value: float, shown: str) -> None:
    assert format_value(value) == shown


def test_six_lanes_in_the_order_of_the_walk() -> None:
    assert [lane.column for lane in LANES] == [
        "p",
        "entropy",
        "rank",
        "ranktuner_scale",
        "deft_gate",
        "del_penalty",
    ]
    assert [lane.column for lane in LANES if lane.low_hue] == ["ranktuner_scale"]


def test_every_hue_is_one_the_strip_can_draw() -> None:
    style = strip_style()
    for lane in LANES:
        assert f'[data-hue="{lane.hue}"]' in style
        assert not lane.low_hue or f'[data-low-hue="{lane.low_hue}"]' in style


def test_places_on_the_colour_scale() -> None:
    def place(lane: object, *values: float, vocabulary: int = 1000) -> list[float]:
        return lane.place(np.array(values), vocabulary).tolist()  # type: ignore[attr-defined]

    assert place(P, 0.0, 0.25, 1.0) == [0, 25, 100]
    assert place(DEFT, 0.0, 0.5, 1.0) == [0, 50, 100]
    assert place(ENTROPY, 0.0, math.log(1000) / 2, math.log(1000)) == pytest.approx([0, 50, 100])
    assert place(RANK, 1, 10, 1000) == pytest.approx([0, 100 / 3, 100])
    assert place(RANKTUNER, 0.5, 1.0, 2.0) == [0, 50, 100]
    assert place(RANKTUNER, 2**-0.5, 2**0.5) == pytest.approx([25, 75])
    assert place(DEL, 0.0, 0.01, 0.04) == pytest.approx([0, 25, 100])
    assert place(DEL, 0.0) == [0]


def test_ends_name_the_scale() -> None:
    values = np.array([math.nan, 0.01, 0.04])
    assert ENTROPY.ends(values, 1000) == ("0 · decided", "6.91 nats · any token")
    assert RANK.ends(values, 49_152) == ("1 · first guess", "49,152 · last")
    assert DEL.ends(values, 1000) == ("0 · no push", "0.0400 · most here")
    assert DEL.ends(np.array([math.nan]), 1000) == ("0 · no push", "no digits here")
