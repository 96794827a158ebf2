"""A weight of one's own, as text: arithmetic, and nothing else of Python."""

from __future__ import annotations

import builtins
import math
import os
import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from losscore import objectives
from losscore.errors import LosscoreError
from losscore.objectives import from_formula, gate
from losscore.objectives.formula import NAMES
from tests.objectives.family import batch, flat, tokens_of

FUNCTIONS = {"log": math.log, "log2": math.log2, "exp": math.exp, "sqrt": math.sqrt}
LOGITS, TARGET, _, _ = flat(batch(1))
TOKENS = tokens_of(LOGITS, TARGET)
LONG = ["-" * 299 + "p", "(" * 149 + "p" + ")" * 149, "p" + "+p" * 149, "p" + "**p" * 99, "not " * 70 + "p"]


def plain(text: str) -> list[float]:
    """The same by Python itself, at every token."""
    columns = {name: getattr(TOKENS, name).detach().tolist() for name in NAMES if name != "V"}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    everything = {"abs": abs, "min": min, "max": max, **FUNCTIONS, "V": TOKENS.vocabulary}
    return [float(eval(text, everything, row)) for row in rows]


@pytest.mark.parametrize(
    "text",
    [
        "p",
        "1",
        "-0.5",
        "p**0.3 * (1 - entropy/log(V))",
        "1 / expected_rank + rank / V",
        "log2(rank + 1) ** -2",
        "exp(log_p * concentration)",
        "sqrt(top_entropy / log(20))",
        "log(rank, 10)",
        "min(p, 0.1, concentration) + max(p, 0.1) - abs(log_p)",
        "1 if p < 0.2 else 2 if p <= 0.5 else 3",
        "(p > 0.01) * 2 + (rank == 1) - (rank != 1)",
        "p > 0.01 and entropy > 1 or 0.5",
        "not p > 0.01",
        "0.1 < p < 0.5",
        " +p ",
        "2**-p",
        "1e-3 + 1_000 * p",
        "True * p",
    ],
)
def test_the_weight_is_the_arithmetic(text: str) -> None:
    weights = gate(from_formula(text), TOKENS)
    assert weights.tolist() == pytest.approx(plain(text), rel=1e-12)


def test_p_is_the_gate_of_the_linear_loss() -> None:
    torch.testing.assert_close(gate(from_formula("p"), TOKENS), gate(objectives.linear, TOKENS), rtol=1e-12, atol=0)


def test_the_weight_is_constant() -> None:
    one = batch(2)
    value, gradient = one.value_and_gradient(from_formula("p"))
    expected, dft = one.value_and_gradient(objectives.dft)
    torch.testing.assert_close(gradient, dft, rtol=1e-12, atol=0)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=0)


def test_what_a_formula_says_of_itself() -> None:
    own = from_formula("log_p*top_entropy  # <b>{}")
    assert (own.name, own.kind, own.paper, own.parameters) == ("formula", "own formula", "", {})
    assert own.formula == r"-\mathrm{const}(w) \log p,\quad w = \texttt{log\_p * top\_entropy}"
    assert (own + objectives.nll).title == "My formula + NLL"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "Write a formula for the weight, for example p**0.3 * (1 - entropy/log(V))."),
        ("   ", "Write a formula for the weight"),
        ("p" * 301, "The formula is longer than 300 characters: write a shorter one."),
        ("q", "The formula uses 'q', which is unknown; known are p, log_p, entropy, rank,"),
        ("sin(p)", "The formula calls 'sin', which is unknown; known are log, exp, sqrt, log2, abs, min, max."),
        ("__import__('os').system('true')", "numbers, names"),
        ("__import__", "uses '__import__', which is unknown"),
        ("open('x')", "numbers, names"),
        ("eval(p)", "calls 'eval', which is unknown"),
        ("print(p)", "calls 'print', which is unknown"),
        ("p.__class__", "numbers, names"),
        ("p.real", "numbers, names"),
        ("().__class__.__bases__[0].__subclasses__()", "numbers, names"),
        ("abs.__self__", "numbers, names"),
        ("2(p)", "numbers, names"),
        ("(p + 1)(2)", "numbers, names"),
        ("log(p)(p)", "numbers, names"),
        ("p(2)", "calls 'p', which is unknown"),
        ("(lambda: p)()", "numbers, names"),
        ("[p for p in (1,)]", "numbers, names"),
        ("[1, 2][0]", "numbers, names"),
        ("{1: p}", "numbers, names"),
        ("'a' * 9", "numbers, names"),
        ("b'a'", "numbers, names"),
        ("f'{p:>99999999}'", "numbers, names"),
        ("'text'", "numbers, names"),
        ("1j", "numbers, names"),
        ("None", "numbers, names"),
        ("...", "numbers, names"),
        ("(x := p)", "numbers, names"),
        ("max(*[p, 1])", "numbers, names"),
        ("max(p, key=abs)", "numbers, names"),
        ("p % 2", "numbers, names"),
        ("p // 2", "numbers, names"),
        ("1 << 99", "numbers, names"),
        ("1 ^ 2", "numbers, names"),
        ("~1", "numbers, names"),
        ("p is 1", "numbers, names"),
        ("p in (1, 2)", "numbers, names"),
        ("p @ p", "numbers, names"),
        ("p +", "not complete"),
        ("(p", "not complete"),
        ("p = 1", "not complete"),
        ("import os", "not complete"),
        ("p; p", "not complete"),
        ("p\np", "not complete"),
        ("p p", "not complete"),
        ("p\x00", "not complete"),
        ("9**9**9**9", "no finite value"),
        ("9**9**9", "no finite value"),
        ("exp(1000)", "no finite value"),
        ("log(0)", "no finite value"),
        ("sqrt(-1)", "no finite value"),
        ("(-1)**0.5", "no finite value"),
        ("abs((-8)**(1/3))", "no finite value"),
        ("0**-1", "no finite value"),
        ("1/0", "The formula divides by 0 at some token: add a small number below the line."),
        ("p / (rank - rank)", "divides by 0"),
        ("1e999", "must give one finite number"),
        ("1e999 - 1e999", "must give one finite number"),
        ("log", "must give one finite number"),
        ("max(p)", "lacks its numbers"),
        ("log()", "lacks its numbers"),
        ("sqrt(p, 2)", "lacks its numbers"),
        ("max(p, log)", "lacks its numbers"),
        ("log + 1", "lacks its numbers"),
    ],
)
def test_anything_else_is_one_plain_sentence(text: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    for module, name in ((os, "system"), (os, "popen"), (builtins, "print"), (builtins, "open")):
        monkeypatch.setattr(module, name, lambda *args, **kwargs: ran.append(args))
    start = time.perf_counter()
    with pytest.raises(LosscoreError) as raised:
        from_formula(text)
    assert time.perf_counter() - start < 1
    assert not ran
    message = str(raised.value)
    assert sentence in message
    assert "\n" not in message
    assert message.endswith(".")


@pytest.mark.parametrize("text", LONG)
def test_long_formulas_are_evaluated_or_refused(text: str) -> None:
    weighed(text)


def weighed(text: str) -> None:
    """A formula is a finite weight at every token, or one sentence."""
    refused = None
    try:
        weights = gate(from_formula(text), TOKENS)
    except LosscoreError as error:
        refused = str(error)
    assert refused.endswith(".") if refused is not None else weights.isfinite().all()


@given(st.text(alphabet="pqV01.9+-*/() ,<>=!loexgrank_[]{}'\"\\\t:;#@%&|^~", max_size=40))
@example("p" + "(" * 90)
def test_whatever_is_typed_it_is_a_weight_or_a_sentence(text: str) -> None:
    weighed(text)


def test_a_formula_that_fails_at_another_token_says_so_there() -> None:
    own = from_formula("1 / (rank - 1)")
    first = replace(TOKENS, rank=torch.ones_like(TOKENS.rank))
    with pytest.raises(LosscoreError, match="divides by 0 at some token"):
        gate(own, first)
    broken = replace(TOKENS, entropy=TOKENS.entropy * torch.nan)
    with pytest.raises(LosscoreError, match="one finite number at every token"):
        gate(from_formula("entropy"), broken)
