"""losscore: see, token by token, what a fine-tuning objective sees.

import losscore
model = losscore.load()
sheet = losscore.score(model, "8 pens cost 8 * 12.5 = 100.0")
sheet.to_frame()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from losscore import objectives
    from losscore.finetuning import finetune
    from losscore.models import load
    from losscore.scoring import score
    from losscore.sheet import Sheet

__all__ = ["Sheet", "finetune", "load", "objectives", "score"]
_HOME = {
    "load": "losscore.models",
    "score": "losscore.scoring",
    "finetune": "losscore.finetuning",
    "Sheet": "losscore.sheet",
}


def __getattr__(name: str) -> Any:
    # torch takes seconds to import: only who uses it waits for it.
    if name == "objectives":
        return import_module("losscore.objectives")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'losscore' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
