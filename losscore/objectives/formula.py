"""One's own formula: a weight written as text over the statistics' names, beside the published objectives."""

from __future__ import annotations

import ast
import math
import operator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from losscore.errors import LosscoreError
from losscore.objectives.objective import Objective, Term
from losscore.objectives.tokens import READABLE, Tokens

NAMES = ("p", "log_p", "entropy", "rank", "expected_rank", "concentration", "top_entropy", "V")
_FUNCTIONS = {
    "log": math.log,
    "exp": math.exp,
    "sqrt": math.sqrt,
    "log2": math.log2,
    "abs": abs,
    "min": min,
    "max": max,
}
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    # On floats: an integer power can fill the memory, a root of a negative number is complex.
    ast.Pow: math.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ALLOWED = (ast.Name, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Load, ast.And, ast.Or)
_LONGEST = 300
# An ordinary token, with numbers that a formula is unlikely to subtract.
_TRIAL = (0.2537, math.log(0.2537), 1.517, 4.0, 6.31, 0.3121, 1.273, 49_152)


def from_formula(text: str) -> Objective:
    """-weight log p, the weight being `text` at each token and constant, as `p**0.3 * (1 - entropy/log(V))`.

    Names: p, log_p, entropy (nats), rank, expected_rank, concentration, top_entropy, V (size of the vocabulary);
    functions: log, log2, exp, sqrt, abs, min, max; numbers, + - * / **, comparisons, and/or/not, `a if c else b`. Only
    these are read, by simpleeval: nothing else of Python can be reached. Raises LosscoreError naming what is unknown or
    wrong; it is tried once here, on the numbers of an ordinary token.

    >>> weighted = from_formula("p * (rank < 10)")
    >>> weighted.title
    'My formula'
    """
    tree = _parse(text.strip())
    _evaluate(tree, dict(zip(NAMES, _TRIAL, strict=True)))

    def weighted(tokens: Tokens) -> Float[Tensor, " tokens"]:
        return -_weights(tree, tokens) * tokens.log_p

    # The loss itself is of log_p, as p is.
    read = {"log_p"} | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    shown = ast.unparse(tree).replace("_", r"\_")
    return Objective(
        name="formula",
        title="My formula",
        idea="Weighs each token as you wrote it, the weight held constant.",
        formula=rf"-\mathrm{{const}}(w) \log p,\quad w = \texttt{{{shown}}}",
        kind="own formula",
        paper="",
        terms=((1.0, Term(weighted, "tokens", False, {}, declared=tuple(read & set(READABLE)))),),
    )


def _weights(tree: ast.expr, tokens: Tokens) -> Tensor:
    columns = [tokens.log_p.detach() if name == "log_p" else getattr(tokens, name) for name in NAMES[:-1]]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    values = [_evaluate(tree, dict(zip(NAMES, (*row, tokens.vocabulary), strict=True))) for row in rows]
    return torch.tensor(values, dtype=tokens.log_p.dtype, device=tokens.log_p.device)


def _parse(text: str) -> ast.expr:
    if not text:
        raise LosscoreError("Write a formula for the weight, for example p**0.3 * (1 - entropy/log(V)).")
    if len(text) > _LONGEST:
        raise LosscoreError(f"The formula is longer than {_LONGEST} characters: write a shorter one.")
    try:
        tree = ast.parse(text, mode="eval").body
        for node in ast.walk(tree):
            _check(node)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise LosscoreError("The formula is not complete or not arithmetic: check its brackets and signs.") from error
    return tree


def _check(node: ast.AST) -> None:
    match node:
        case ast.Constant(value=bool() | int() | float()) | ast.Call(func=ast.Name(), keywords=[]):
            return
        case ast.operator() | ast.unaryop() | ast.cmpop() if type(node) in _OPERATORS:
            return
    if not isinstance(node, _ALLOWED):
        raise LosscoreError("The formula may hold numbers, names, + - * / **, comparisons and functions only.")


def _evaluate(tree: ast.expr, names: dict[str, Any]) -> float:
    import simpleeval

    reader = simpleeval.SimpleEval(operators=_OPERATORS, functions=_FUNCTIONS, names=names)
    try:
        value = reader.eval("", previously_parsed=tree)
    except simpleeval.NameNotDefined as error:
        known = ", ".join(NAMES)
        raise LosscoreError(f"The formula uses {error.name!r}, which is unknown; known are {known}.") from error
    except simpleeval.FunctionNotDefined as error:
        known = ", ".join(_FUNCTIONS)
        raise LosscoreError(f"The formula calls {error.func_name!r}, which is unknown; known are {known}.") from error
    except ZeroDivisionError as error:
        raise LosscoreError("The formula divides by 0 at some token: add a small number below the line.") from error
    except (ValueError, OverflowError) as error:
        raise LosscoreError(
            "The formula has no finite value at some token (a logarithm or root out of range, or too large a number)."
        ) from error
    except TypeError as error:
        raise LosscoreError("A function in the formula lacks its numbers, as in max(p, 0.1): check them.") from error
    except RecursionError as error:
        raise LosscoreError("The formula is nested too deeply: write a shorter one.") from error
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise LosscoreError("The formula must give one finite number at every token.")
    return float(value)
