"""Every objective by name. A new one is one new file beside this; nothing else needs to know of it."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from losscore.errors import LosscoreError
from losscore.objectives.objective import Objective

_ORDER = ("baseline", "probability-dominant", "entropy-dominant", "calibrated", "gate", "digits")


def _collect() -> dict[str, Objective]:
    package = __name__.rpartition(".")[0]
    found: dict[str, Objective] = {}
    for module in iter_modules(import_module(package).__path__):
        for value in vars(import_module(f"{package}.{module.name}")).values():
            if isinstance(value, Objective):
                found[value.name] = value
    return dict(sorted(found.items(), key=lambda item: (_ORDER.index(item[1].kind), item[0])))


CATALOGUE: dict[str, Objective] = _collect()


def find(name: str) -> Objective:
    """The objective of that name. Raises LosscoreError naming the known ones."""
    if name not in CATALOGUE:
        raise LosscoreError(f"There is no objective {name!r}; the known ones are {', '.join(CATALOGUE)}.")
    return CATALOGUE[name]
