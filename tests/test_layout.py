"""The picture in the design, kept true: who may import whom, and what an import costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).parents[1]


def test_imports_keep_the_layers() -> None:
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None) == EXIT_STATUS_SUCCESS


def test_importing_losscore_loads_none_of_the_heavy_libraries() -> None:
    code = (
        "import sys, losscore, losscore.sheet, losscore.lanes, losscore.models;"
        "print(*{'torch', 'transformers', 'pandas', 'pyarrow', 'plotly', 'streamlit'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_public_names_are_there_and_no_others() -> None:
    import losscore

    assert {name: getattr(losscore, name) is not None for name in losscore.__all__} == dict.fromkeys(
        losscore.__all__, True
    )
    assert dir(losscore) == losscore.__all__
