"""A hyperparameter of an objective: how its function's annotation says what it means, and what values it takes."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from losscore.errors import LosscoreError


class Between(NamedTuple):
    """The range of a number and what it means, as an annotation of a keyword-only argument."""

    low: float
    high: float
    meaning: str


class OneOf(NamedTuple):
    """What a choice means, as an annotation of a keyword-only argument with a Literal type."""

    meaning: str


@dataclass(frozen=True)
class Parameter:
    """One hyperparameter: a number with a range, a choice, or a switch."""

    name: str
    default: float | str | bool
    meaning: str
    low: float = 0.0
    high: float = 1.0
    choices: tuple[str, ...] = ()

    def check(self, value: Any) -> float | str | bool:
        """`value` as it will be used. Raises LosscoreError, saying the range or the choices."""
        if self.choices:
            if value not in self.choices:
                raise LosscoreError(f"{self.name} must be one of {', '.join(map(repr, self.choices))}, not {value!r}.")
            return str(value)
        if isinstance(self.default, bool):
            if not isinstance(value, bool):
                raise LosscoreError(f"{self.name} must be true or false, not {value!r}.")
            return value
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
        if not self.low <= number <= self.high:
            raise LosscoreError(f"{self.name} must lie between {self.low:g} and {self.high:g}, not {value!r}.")
        return number


def parameters_of(function: Callable[..., Any]) -> dict[str, Parameter]:
    """What the keyword-only arguments of an objective's function say of themselves, by their names."""
    hints = get_type_hints(function, include_extras=True)
    found = {}
    for name, argument in inspect.signature(function).parameters.items():
        if argument.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        type_, note = get_args(hints[name])
        if isinstance(note, Between):
            found[name] = Parameter(name, argument.default, note.meaning, note.low, note.high)
        else:
            choices = get_args(type_) if get_origin(type_) is Literal else ()
            found[name] = Parameter(name, argument.default, note.meaning, choices=choices)
    return found
