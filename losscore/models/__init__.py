"""Which models are offered, where their weights come from, and how one is loaded and run.

Listing (`available`) needs neither torch nor transformers; `load` and `Model` import them on first use.
"""

from typing import TYPE_CHECKING, Any

from losscore.models.catalogue import Offer, available
from losscore.models.embedded import EMBEDDED, install_embedded, prepare_embedded
from losscore.models.progress import Progress

if TYPE_CHECKING:
    from losscore.models.loading import load
    from losscore.models.model import Model

__all__ = [
    "EMBEDDED",
    "Model",
    "Offer",
    "Progress",
    "available",
    "install_embedded",
    "load",
    "prepare_embedded",
]


def __getattr__(name: str) -> Any:
    if name == "load":
        from losscore.models.loading import load

        return load
    if name == "Model":
        from losscore.models.model import Model

        return Model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
