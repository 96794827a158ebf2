"""Prompt and response pairs: what a model is trained on, and a file of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from losscore.errors import TextError
from losscore.text.source import read_file


class Example(NamedTuple):
    """A prompt and its response, such as a question and its worked answer.

    They are joined as they are: a blank between them belongs to one of them.
    """

    prompt: str
    response: str


Given = str | Example | Mapping[str, str] | Iterable[str | tuple[str, str] | Example | Mapping[str, str]]
_FIELDS = {"prompt", "response", "text"}
_WANTED = 'give a text under "response" (and one under "prompt"), or one under "text" alone'


def as_examples(given: Given) -> list[Example]:
    """A text, texts, (prompt, response) pairs or dicts as examples; a text is a response without a prompt.

    A dict has "response" and perhaps "prompt", or "text" alone; other fields are ignored beside "text", or beside both
    of the pair. Raises TextError where one is something else.
    """
    if isinstance(given, str | Mapping | Example):
        given = [given]
    try:
        return [_as_example(one, f"Example {number}") for number, one in enumerate(given, 1)]
    except TypeError as error:
        raise TextError(f"Examples must be a text or a list of texts or pairs, not {type(given).__name__}.") from error


def _as_example(one: object, place: str) -> Example:
    if isinstance(one, Mapping):
        return _of_fields(one, place)
    parts = ("", one) if isinstance(one, str) else tuple(one) if isinstance(one, tuple | list) else ()
    if len(parts) != 2 or not all(isinstance(part, str) for part in parts):
        raise TextError(f"{place} must be a text, a pair of texts (prompt, response), or a dict of the two.")
    return Example(*parts)


def _of_fields(fields: Mapping[Any, object], place: str) -> Example:
    foreign = [key for key in fields if key not in _FIELDS]
    # Beside both of them an id or a source does no harm; beside a response alone it may be a prompt misspelt.
    if foreign and "text" not in fields and not {"prompt", "response"} <= fields.keys():
        raise TextError(f"{place} has a field {foreign[0]!r} that means nothing here: leave it out, or {_WANTED}.")
    response, prompt = fields.get("response", fields.get("text")), fields.get("prompt", "")
    if (
        not isinstance(response, str)
        or not isinstance(prompt, str)
        or ("text" in fields and len(fields.keys() & _FIELDS) > 1)
    ):
        raise TextError(f"{place} is not as it must be: {_WANTED}.")
    return Example(prompt, response)


def read_examples(path: str | Path) -> list[Example]:
    """Examples from a JSONL file: each line an object with "response" and perhaps "prompt", or with "text" alone.

    Blank lines are skipped. A line means what a dict of the same fields means to `as_examples`. Raises TextError naming
    the first line that is something else.
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
    if not isinstance(fields, dict):
        raise TextError(f"{place} is not as it must be: {_WANTED}.")
    return _of_fields(fields, place)
