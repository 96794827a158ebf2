"""What every objective says of itself, and that none is missed."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import sys
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pytest
import torch

from losscore import objectives
from losscore.errors import LosscoreError
from losscore.objectives import CATALOGUE, Objective, catalogue, find

MODULES = [f"losscore.objectives.{module.name}" for module in iter_modules(objectives.__path__)]
every = pytest.mark.parametrize("objective", CATALOGUE.values(), ids=CATALOGUE)
PARAMETERS = [(objective, parameter) for objective in CATALOGUE.values() for parameter in objective.parameters.values()]
parameters = pytest.mark.parametrize(
    ("objective", "parameter"), PARAMETERS, ids=[f"{o.name}-{p.name}" for o, p in PARAMETERS]
)


def test_the_papers_objectives_are_there_in_order() -> None:
    assert list(CATALOGUE) == [
        *("nll", "dft", "linear", "mixce", "talr", "tsallis"),
        "eaft",
        *("emo", "overtone", "ranktuner"),
        *("cayley", "deft"),
        *("del_loss", "del_penalty", "dist2loss", "ntl_mse", "ntl_was"),
    ]
    assert all(getattr(objectives, name) is objective for name, objective in CATALOGUE.items())
    assert set(CATALOGUE) <= set(objectives.__all__)


def test_every_objective_of_every_module_is_registered_under_its_own_name() -> None:
    for name in MODULES:
        for value in vars(importlib.import_module(name)).values():
            if isinstance(value, Objective):
                assert CATALOGUE[value.name] is value


def test_a_new_file_is_all_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "halved.py").write_text(
        "from losscore.objectives.objective import objective\n"
        '@objective(title="Halved", idea="Half.", formula="x", kind="baseline", paper="2000.00001")\n'
        "def halved(tokens):\n"
        '    """L = -log p / 2."""\n'
        "    return -tokens.log_p / 2\n"
    )
    monkeypatch.setattr(objectives, "__path__", [*objectives.__path__, str(tmp_path)])
    try:
        found = catalogue._collect()
    finally:
        sys.modules.pop("losscore.objectives.halved", None)
        vars(objectives).pop("halved", None)
    assert list(found) == ["halved", *CATALOGUE]


def test_finding_by_name() -> None:
    assert find("deft") is objectives.deft
    with pytest.raises(LosscoreError, match=r"There is no objective 'def'; the known ones are nll, dft, .*\.$"):
        find("def")


@every
def test_what_it_says_of_itself(objective: Objective) -> None:
    assert objective.title
    assert re.fullmatch(r"[A-Z][^.]*\.", objective.idea), "one sentence"
    assert objective.formula
    assert objective.formula.count("{") == objective.formula.count("}")
    assert objective.formula.count(r"\left") == objective.formula.count(r"\right")
    assert re.fullmatch(r"\d{4}\.\d{5}", objective.paper) or objective.name == "nll"
    assert not objective.differs or objective.differs.endswith(".")


@pytest.mark.parametrize("objective", [o for o in CATALOGUE.values() if len(o.terms) == 1], ids=lambda o: o.name)
def test_its_function_is_documented_by_its_equation(objective: Objective) -> None:
    (_, term) = objective.terms[0]
    assert (term.function.__doc__ or "").startswith("L = ")
    assert term.function.__name__ == objective.name
    assert (sys.modules[term.function.__module__].__doc__ or "").strip()
    kinds = {argument.kind for argument in inspect.signature(term.function).parameters.values()}
    assert kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    assert objective.needs_digits == (objective.kind == "digits")


@parameters
def test_a_parameter_has_a_default_in_its_range_and_a_meaning(objective: Objective, parameter: Any) -> None:
    assert re.fullmatch(r"[A-Z].*\.", parameter.meaning)
    assert objective.values[parameter.name] == parameter.default
    assert parameter.check(parameter.default) == parameter.default
    if isinstance(parameter.default, bool):
        assert objective.with_parameters(**{parameter.name: not parameter.default}).values[parameter.name] is (
            not parameter.default
        )
    for choice in parameter.choices:
        assert objective.with_parameters(**{parameter.name: choice}).values[parameter.name] == choice
    if not parameter.choices and not isinstance(parameter.default, bool):
        assert parameter.low <= parameter.default <= parameter.high
        for edge in (parameter.low, parameter.high):
            assert objective.with_parameters(**{parameter.name: edge}).values[parameter.name] == edge


@parameters
@pytest.mark.parametrize("wrong", [-1e9, 1e9, float("nan"), float("inf"), "much", None, [1], True, 1])
def test_a_parameter_out_of_range_is_refused_in_one_sentence(objective: Objective, parameter: Any, wrong: Any) -> None:
    number = not parameter.choices and not isinstance(parameter.default, bool)
    if (wrong is True and isinstance(parameter.default, bool)) or (wrong == 1 and wrong is not True and number):
        return
    with pytest.raises(LosscoreError) as raised:
        objective.with_parameters(**{parameter.name: wrong})
    assert re.fullmatch(rf"{parameter.name} must [^.]*(\.\d[^.]*)*\.", str(raised.value))


@every
def test_an_unknown_parameter_is_refused_in_one_sentence(objective: Objective) -> None:
    with pytest.raises(LosscoreError) as raised:
        objective.with_parameters(temperatur=1)
    known = ", ".join(objective.parameters) or "none"
    assert str(raised.value) == f"{objective.title} has no parameter 'temperatur'; it has: {known}."


def test_numbers_of_any_kind_become_floats() -> None:
    for one in (1, np.float32(1), np.int64(1)):
        value = objectives.tsallis.with_parameters(a=one).values["a"]
        assert (type(value), value) == (float, 1.0)


def test_a_parameter_can_be_given_in_the_call() -> None:
    logits, labels = torch.randn(1, 4, 9, generator=torch.Generator().manual_seed(0)), torch.tensor([[1, 2, 3, 4]])
    assert objectives.tsallis(logits, labels, a=1) == objectives.linear(logits, labels)


@pytest.mark.parametrize("name", ["losscore.objectives", *MODULES])
def test_the_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    # An objective hides the module of its name from `import a.b.c`, so it is asked for by its full name.
    result = doctest.testmod(sys.modules[module.__name__])
    source = Path(sys.modules[name].__file__ or "").read_text("utf-8")
    assert result.failed == 0
    assert result.attempted == source.count(">>> ")
