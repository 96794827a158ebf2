"""Curves and planes of the objectives against their equations at hand-made distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from losscore import objectives
from losscore.landscape import curve, plane, probabilities
from losscore.objectives import CATALOGUE, from_formula

P = np.array([1e-4, 0.02, 0.3, 0.9])
OTHERS = 4
V = 50_000


def concentration(p: float) -> float:
    return p**2 + OTHERS * ((1 - p) / OTHERS) ** 2


def entropy(p: float) -> float:
    rest = (1 - p) / OTHERS
    return -p * math.log(p) - OTHERS * rest * math.log(rest)


def scale(p: float) -> float:
    rest = (1 - p) / OTHERS
    masses = sorted([p, *[rest] * OTHERS], reverse=True)
    expected = sum(i * mass for i, mass in enumerate(masses, 1))
    rank = sum(mass >= p for mass in masses)
    return 2 ** (1 / math.log2(expected + 1) - 1 / math.log2(rank + 1))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nll", lambda p: 1.0),
        ("linear", lambda p: p),
        ("tsallis", lambda p: p**0.5),
        ("deft", lambda p: p ** concentration(p)),
        ("eaft", lambda p: entropy(p) / math.log(20)),
        ("ranktuner", scale),
        ("mixce", lambda p: 0.5 + 0.5 * p),
    ],
)
def test_curves_are_the_equations(name, expected) -> None:
    found = curve(CATALOGUE[name], P, OTHERS, V)
    assert found is not None
    assert found.weight == pytest.approx([expected(p) for p in P], rel=1e-9)
    assert found.push == pytest.approx([expected(p) * (1 - p) for p in P], rel=1e-9)


def test_what_p_and_the_spread_do_not_determine_has_no_curve() -> None:
    without = {name for name, objective in CATALOGUE.items() if curve(objective, P, OTHERS, V) is None}
    assert without == {"talr", "emo", "del_loss", "del_penalty", "dist2loss", "ntl_mse", "ntl_was"}
    assert curve(objectives.talr.with_parameters(tau=2.0), P, OTHERS, V).weight == pytest.approx(np.sqrt(P), rel=1e-9)


def test_only_functions_of_p_and_entropy_have_a_plane() -> None:
    p, h = np.array([0.1, 0.5]), np.array([0.8, 3.0])
    with_plane = {name for name, objective in CATALOGUE.items() if plane(objective, p, h, V) is not None}
    assert with_plane == {"nll", "linear", "tsallis", "dft", "mixce", "cayley"}
    found = plane(from_formula("p * entropy"), p, h, V)
    assert found == pytest.approx(np.outer(h, p))
    assert plane(from_formula("p * rank"), p, h, V) is None


def test_the_plane_is_blank_where_no_distribution_can_lie() -> None:
    # p = 0.5: at least ln 2 (the rest on one token), at most ln 2 + 0.5 ln(V - 1)
    low, high = math.log(2), math.log(2) + 0.5 * math.log(V - 1)
    h = np.array([low - 0.01, low + 0.01, high - 0.01, high + 0.01])
    found = plane(objectives.nll, np.array([0.5]), h, V)
    assert np.isfinite(found[:, 0]).tolist() == [False, True, True, False]


def test_the_probabilities_rise_from_nearly_0_to_nearly_1() -> None:
    p = probabilities()
    assert (np.diff(p) > 0).all()
    assert p[0] == pytest.approx(1e-6)
    assert p[-1] == pytest.approx(0.999)
