"""Prompt and response pairs: what a model is trained on, and a file of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from losscore.errors import TextError
from losscore.text.source import read_file


class Example(NamedTuple):
    """A prompt and its response, such as a question and its worked answer.

    They are joined as they are: a blank between them belongs to one of them.
    """

    prompt: str
    response: str


def as_examples(given: str | Sequence[str | tuple[str, str] | Example]) -> list[Example]:
    """A text, texts, or (prompt, response) pairs as examples; a text is a response without a prompt.

    Raises TextError where one is something else.
    """
    examples = []
    for number, one in enumerate([given] if isinstance(given, str) else given, 1):
        parts = ("", one) if isinstance(one, str) else tuple(one) if isinstance(one, tuple | list) else ()
        if len(parts) != 2 or not all(isinstance(part, str) for part in parts):
            raise TextError(f"Example {number} must be a text or a pair of texts (prompt, response).")
        examples.append(Example(*parts))
    return examples


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
