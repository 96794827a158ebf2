"""The README's generated parts. `python -m tests.readme` writes them anew; test_readme.py checks them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from losscore.columns import COLUMNS
from losscore.lanes import LANES
from losscore.objectives import CATALOGUE
from tests.bench.table import kept, table

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
TREE = {
    "pyproject.toml": "what the package needs",
    "requirements.lock": "the exact versions that `make` installs",
    "Makefile": "app, test, check",
    "losscore/": None,
    "app/": None,
    "assets/": "example texts, screenshots",
    "tests/": "mirrors the above; values this project did not compute in reference/, a real browser in browser/",
}


def lanes() -> str:
    """The table of lanes."""
    rows = ["| lane | column | what it says |", "|---|---|---|"]
    rows += [f"| {lane.title} ({lane.name}) | `{lane.column}` | {lane.line} |" for lane in LANES]
    return "\n".join(rows)


def columns() -> str:
    """The table of columns."""
    rows = ["| column | meaning |", "|---|---|"]
    rows += [f"| `{name}` | {column.meaning} |" for name, column in COLUMNS.items()]
    return "\n".join(rows)


def objectives() -> str:
    """The table of objectives."""
    rows = ["| name | | kind | idea | loss | arXiv |", "|---|---|---|---|---|---|"]
    rows += [
        f"| `{one.name}` | {one.title} | {one.kind} | {one.idea} | ${one.formula}$ | {one.paper or '–'} |"
        for one in CATALOGUE.values()
    ]
    return "\n".join(rows)


def speed() -> str:
    """What `make bench` measured last."""
    return table(kept())


def tree() -> str:
    """Files and folders, each with the first line of its docstring."""
    lines = []
    for name, words in TREE.items():
        if words is not None:
            lines.append((name, words))
            continue
        folder = ROOT / name
        lines.append((name, _summary(folder / "__init__.py")))
        for path in sorted(folder.rglob("*")):
            inner = path.relative_to(ROOT)
            depth = "  " * (len(inner.parts) - 1)
            if path.is_dir() and (path / "__init__.py").exists():
                lines.append((f"{depth}{path.name}/", _summary(path / "__init__.py")))
            elif path.suffix == ".py" and not path.name.startswith("__"):
                lines.append((f"{depth}{path.name}", _summary(path)))
            elif path.suffix in (".js", ".css"):
                lines.append((f"{depth}{path.name}", ""))
    width = max(len(name) for name, _ in lines) + 2
    return "```\n" + "\n".join(f"{name:<{width}}{words}".rstrip() for name, words in lines) + "\n```"


def _summary(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return docstring.split("\n")[0].rstrip(".")


PARTS = {"lanes": lanes, "columns": columns, "objectives": objectives, "speed": speed, "tree": tree}


def rendered(text: str) -> str:
    """`text` with each generated part between its two marks written anew."""
    for name, make in PARTS.items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)"
        text, found = re.subn(pattern, lambda match, make=make: f"{match[1]}{make()}\n{match[2]}", text, flags=re.S)
        if found != 1:
            raise ValueError(f"README.md needs one pair of marks for {name}")
    return text


if __name__ == "__main__":
    README.write_text(rendered(README.read_text("utf-8")), "utf-8")
