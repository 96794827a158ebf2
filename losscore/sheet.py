"""A sheet: the table of one text, one row per token, every quantity a column, and how it was made."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from losscore.columns import COLUMNS, Column
from losscore.errors import LosscoreError
from losscore.storage import write_whole

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("json", "csv", "parquet", "html")
_CSV_HEAD = "# losscore "


@dataclass(frozen=True)
class Summary:
    """Figures of a whole text, over its targets; None where nothing was scored or the value is not a finite number.

    mean_nll in nats; perplexity = exp(mean_nll); bits_per_byte: total bits over the UTF-8 bytes of the same targets.
    digits_covered of digits_in_text: ASCII digits that are a token of their own in the digit set.
    """

    tokens: int
    scored: int
    mean_nll: float | None
    perplexity: float | None
    total_bits: float | None
    bits_per_byte: float | None
    digits_covered: int
    digits_in_text: int

    def line(self) -> str:
        """The summary as one line of text; what is undefined is left out."""
        parts = [f"{self.scored:,} of {self.tokens:,} tokens scored"]
        if self.mean_nll is not None:
            parts.append(f"mean NLL {self.mean_nll:.3f} nats")
            parts.append(f"perplexity {self.perplexity:,.2f}" if self.perplexity else "perplexity above 1e307")
        if self.total_bits is not None:
            parts.append(f"{self.total_bits:,.1f} bits in all")
        if self.bits_per_byte is not None:
            parts.append(f"{self.bits_per_byte:.3f} bits per byte")
        if self.digits_in_text:
            parts.append(f"{self.digits_covered} of {self.digits_in_text} digits in the digit set")
        return " · ".join(parts)


@dataclass(frozen=True, eq=False)
class Sheet:
    """One scored text.

    columns: name -> one entry per token, named as in `losscore.columns`. Numbers are float64 with NaN where a value is
    undefined; every export turns that into null (never 0, NaN or Infinity).
    text: prompt and response joined. provenance: how the sheet was made, JSON-ready.
    special: which tokens are control tokens. cut_characters: first token -> (characters, number of tokens) where one
    character is split over tokens. top_tokens, top_log_p: the most probable tokens at each row, best first, shown as
    text (empty where there is no prediction). digit_logits, p_digits: logits of the ten digits and the distribution
    among them at the digit rows, by row.
    """

    text: str
    columns: Mapping[str, Any]
    provenance: Mapping[str, Any]
    special: tuple[bool, ...] = ()
    cut_characters: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    top_tokens: tuple[tuple[str, ...], ...] = ()
    top_ids: np.ndarray[Any, Any] | None = None
    top_log_p: np.ndarray[Any, Any] | None = None
    digit_logits: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    p_digits: Mapping[int, tuple[float, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.columns["id"])

    def __repr__(self) -> str:
        summary = self.summary
        return f"Sheet({summary.tokens} tokens, {summary.scored} scored, model {self.provenance.get('model')!r})"

    def value(self, column: str, row: int) -> float | None:
        """One number, or None where it is undefined."""
        number = float(self.columns[column][row])
        return number if math.isfinite(number) else None

    def row_at(self, character: int) -> int:
        """The token that holds a character of `text`; the first one where it is split over several.

        Raises IndexError for a character that no token holds.
        """
        inside = (np.asarray(self.columns["start"]) <= character) & (character < np.asarray(self.columns["end"]))
        if not inside.any():
            raise IndexError(f"no token holds character {character}")
        return int(inside.argmax())

    def part(self, start: int, stop: int) -> Sheet:
        """The rows from `start` to before `stop` as a sheet of their own; text and provenance stay the whole's."""
        at = slice(start, min(stop, len(self)))
        inside = range(at.start, at.stop)
        return replace(
            self,
            columns={name: values[at] for name, values in self.columns.items()},
            special=self.special[at],
            cut_characters={row - start: cut for row, cut in self.cut_characters.items() if row in inside},
            top_tokens=self.top_tokens[at],
            top_ids=None if self.top_ids is None else self.top_ids[at],
            top_log_p=None if self.top_log_p is None else self.top_log_p[at],
            digit_logits={row - start: values for row, values in self.digit_logits.items() if row in inside},
            p_digits={row - start: values for row, values in self.p_digits.items() if row in inside},
        )

    @cached_property
    def summary(self) -> Summary:
        """Means and totals over the targets."""
        target = np.asarray(self.columns["is_target"], dtype=bool)
        log_p = np.asarray(self.columns["log_p"], dtype=np.float64)
        scored = target & ~np.isnan(log_p)
        total = float(-log_p[scored].sum())
        length = sum(len(data) // 2 for data, used in zip(self.columns["bytes"], scored, strict=True) if used)
        count = int(scored.sum())
        mean = total / count if count else math.nan
        bits = total / math.log(2)
        return Summary(
            tokens=len(self),
            scored=count,
            mean_nll=_finite(mean),
            perplexity=_finite(math.exp(mean)) if mean < 709 else None,
            total_bits=_finite(bits) if count else None,
            bits_per_byte=_finite(bits / length) if length else None,
            digits_covered=int(np.isfinite(np.asarray(self.columns["digit"], dtype=np.float64)).sum()),
            digits_in_text=int(self.provenance.get("digits_in_text", 0)),
        )

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per token, with None where a value is undefined."""
        plain = {name: _plain(values, _kind(name)) for name, values in self.columns.items()}
        return [dict(zip(plain, row, strict=True)) for row in zip(*plain.values(), strict=True)]

    def to_frame(self) -> pd.DataFrame:
        """A pandas table with nullable integers; `frame.attrs` holds the provenance."""
        import pandas as pd

        types: dict[str, Any] = {"int": "Int64", "float": "Float64", "bool": "bool", "text": "object"}
        frame = pd.DataFrame(
            {
                name: pd.array(_plain(values, _kind(name)), dtype=types[_kind(name)])
                for name, values in self.columns.items()
            }
        )
        frame.attrs["provenance"] = dict(self.provenance)
        return frame

    def to_json(self) -> str:
        """`{"provenance": {...}, "tokens": [{column: value, ...}, ...]}`, strict: no NaN, no Infinity."""
        table = {"provenance": dict(self.provenance), "tokens": self.rows()}
        return json.dumps(table, ensure_ascii=False, allow_nan=False)

    def to_csv(self) -> str:
        """One cell with the provenance (`# losscore {...}`), then the table; null is blank.

        Tokens such as `null`, `NA` or `007` stay texts with

            pandas.read_csv(path, skiprows=1, keep_default_na=False, na_values=[""], dtype={"token": str, "bytes": str})

        Tokens are written as they are: a spreadsheet may read one that starts with `=`, `+`, `-` or `@` as a formula.
        """
        import csv
        import io

        out = io.StringIO(newline="")
        writer = csv.writer(out)
        writer.writerow([_CSV_HEAD + json.dumps(dict(self.provenance), ensure_ascii=False, allow_nan=False)])
        writer.writerow(self.columns)
        writer.writerows(row.values() for row in self.rows())
        return out.getvalue()

    def to_parquet(self) -> bytes:
        """The table as a Parquet file; the provenance is JSON under the schema's key `losscore`."""
        import io

        import pyarrow as pa
        import pyarrow.parquet as pq

        types = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(), "text": pa.string()}
        kinds = {name: types[_kind(name)] for name in self.columns}
        schema = pa.schema(kinds.items(), metadata={"losscore": json.dumps(dict(self.provenance), allow_nan=False)})
        out = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(self.rows(), schema=schema), out)
        return out.getvalue()

    def to_html(self) -> str:
        """One self-contained page: the lanes, the summary and how they were made. Needs no network."""
        from losscore.lanes.page import lanes_page

        return lanes_page(self, summary=self.summary.line())

    def _repr_html_(self) -> str:
        from losscore.lanes.page import lanes_frame

        return lanes_frame(self, summary=self.summary.line())

    def export(self, format_: str) -> bytes:
        """The sheet as the bytes of one of FORMATS. Raises LosscoreError for another."""
        if format_ not in FORMATS:
            raise LosscoreError(f"The format must be one of {', '.join(FORMATS)}, not {format_!r}.")
        data = getattr(self, f"to_{format_}")()
        return data if isinstance(data, bytes) else str(data).encode("utf-8")

    def save(self, path: str | Path) -> None:
        """Write the sheet as the suffix says: .json, .csv, .parquet or .html; whole or not at all."""
        write_whole(path, self.export(Path(path).suffix.removeprefix(".").lower()))


def _kind(name: str) -> str:
    """A column of an objective that was asked for besides holds numbers."""
    return COLUMNS.get(name, Column("float", "")).kind


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _plain(values: Any, kind: str) -> list[Any]:
    """Python values, None where undefined."""
    if kind == "text":
        return [str(value) for value in values]
    if kind == "bool":
        return [bool(value) for value in values]
    number = int if kind == "int" else float
    return [number(value) if math.isfinite(value) else None for value in np.asarray(values, dtype=np.float64).tolist()]
