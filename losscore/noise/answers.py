"""Questions with worked answers: the ones that come with losscore, or a file of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from losscore.errors import LosscoreError, TextError
from losscore.text.source import read_file


class Example(NamedTuple):
    """A question and its worked answer. They are joined as they are: a blank between them belongs to one of them."""

    prompt: str
    response: str


def worked_answers() -> list[Example]:
    """The 36 worked answers to school-maths questions that come with losscore."""
    package = Path(__file__).parents[1]
    for assets in (package / "_site" / "assets", package.parent / "assets"):
        if (assets / "worked_answers.jsonl").is_file():
            return read_examples(assets / "worked_answers.jsonl")
    raise LosscoreError("The worked answers are missing: install losscore again, or name a file of your own.")


def read_examples(path: str | Path) -> list[Example]:
    """Examples from a JSONL file: each line an object with "response" and perhaps "prompt", or with "text" alone.

    Blank lines are skipped. Raises TextError naming the first line that is something else.
    """
    return parse_examples(read_file(path)[0], str(path))


def parse_examples(content: str, name: str) -> list[Example]:
    """Examples from the text of such a file; `name` is what an error calls it."""
    # splitlines() would also cut at U+2028 and the like, which JSON allows inside a string.
    lines = [(number, line) for number, line in enumerate(content.split("\n"), 1) if line.strip()]
    return [_example(line, f"{name}, line {number}") for number, line in lines]


def _example(line: str, place: str) -> Example:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise TextError(f"{place} is not JSON: write one object a line.") from None
    if isinstance(fields, dict):
        prompt, response = fields.get("prompt", ""), fields.get("response", fields.get("text"))
        if isinstance(prompt, str) and isinstance(response, str):
            return Example(prompt, response)
    raise TextError(f'{place} needs a text under "response" (and one under "prompt"), or one under "text".')
