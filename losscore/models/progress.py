"""How long work tells a person where it stands."""

from collections.abc import Callable

Progress = Callable[[str, float | None], None]
"""Called with a short message and the fraction done, or None where no fraction is known."""


def ignore(message: str, fraction: float | None) -> None:
    """The progress of a caller who asked for none."""
