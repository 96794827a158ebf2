"""The questions with worked answers that come with losscore."""

from __future__ import annotations

from losscore.storage import asset
from losscore.text.examples import Example, read_examples


def worked_answers() -> list[Example]:
    """The 36 worked answers to school-maths questions that come with losscore."""
    return read_examples(asset("worked_answers.jsonl"))
