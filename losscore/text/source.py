"""A file's bytes as text: the encoding is UTF-8 or told by a byte order mark, never guessed, on every system."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import BinaryIO, Literal

from losscore.errors import TextError

MAX_BYTES = 50_000_000
Errors = Literal["strict", "replace"]

# UTF-32's little-endian mark begins with UTF-16's, so it is looked for first.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8", "UTF-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le", "UTF-32"),
    (codecs.BOM_UTF32_BE, "utf-32-be", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "UTF-16"),
)


def read_text(data: bytes, name: str, errors: Errors = "strict") -> tuple[str, tuple[str, ...]]:
    """The text of `data`, and one note for each thing that was changed on the way.

    UTF-8, or UTF-16 or UTF-32 where a byte order mark says so; the mark itself is removed. Everything else is kept,
    newlines too. errors: "replace" puts U+FFFD for what is not valid. Raises TextError with `name` and the byte offset
    otherwise.

    >>> read_text(b"a\\r\\nb", "notes.txt")
    ('a\\r\\nb', ())
    """
    mark, codec, title = next((found for found in _MARKS if data.startswith(found[0])), (b"", "utf-8", "UTF-8"))
    notes = [f"{name}: a {title} byte order mark was removed."] if mark else []
    body = data[len(mark) :]
    try:
        return body.decode(codec), tuple(notes)
    except UnicodeDecodeError as error:
        if errors == "strict":
            offset = len(mark) + error.start
            raise TextError(
                f"{name} is not valid {title} at byte offset {offset} (0x{data[offset]:02X}): save it as UTF-8, "
                "or have what is not valid replaced (--errors replace)."
            ) from None
    text = body.decode(codec, "replace")
    # A U+FFFD that stands in the file survives "ignore", so it is not counted as replaced.
    count = text.count("\ufffd") - body.decode(codec, "ignore").count("\ufffd")
    notes.append(f"{name}: {count:,} invalid byte sequence{'' if count == 1 else 's'} replaced by U+FFFD.")
    return text, tuple(notes)


def read_stream(stream: BinaryIO, name: str, errors: Errors = "strict") -> tuple[str, tuple[str, ...]]:
    """As `read_text`, from an open binary stream. Raises TextError above MAX_BYTES as well."""
    data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise TextError(f"{name} is larger than {MAX_BYTES // 1_000_000} MB: give a shorter text.")
    return read_text(data, name, errors)


def read_file(path: str | Path, errors: Errors = "strict") -> tuple[str, tuple[str, ...]]:
    """As `read_stream`, from a file. Raises TextError where it is missing, a folder or not readable as well."""
    if Path(path).is_dir():
        raise TextError(f"{path} is a folder: name a file in it.")
    try:
        with Path(path).open("rb") as stream:
            return read_stream(stream, str(path), errors)
    except FileNotFoundError:
        raise TextError(f"There is no file {path}: check its name.") from None
    except PermissionError:
        raise TextError(f"{path} may not be read: change its permissions, or copy it.") from None
    except OSError as error:
        raise TextError(f"{path} cannot be read ({error.strerror or 'unknown reason'}): try a copy of it.") from error
