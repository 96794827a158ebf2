"""Shapes are checked while the tests run; nothing is fetched; a mini model for most, the embedded one for some."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

import losscore

# Before transformers is imported, and before the packages whose shapes are checked: losscore imports both when asked.
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
install_import_hook(["losscore.stats", "losscore.objectives"], "beartype.beartype")

settings.register_profile("losscore", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("losscore")


def pytest_runtest_setup(item: pytest.Item) -> None:
    # Two threads in a tiny network mostly wait for each other.
    torch.set_num_threads(2 if item.get_closest_marker("embedded") else 1)


REFERENCE = Path(__file__).parent / "reference"


def reference_cases(name: str) -> list[dict[str, Any]]:
    """The cases of one file of values that losscore did not compute."""
    return json.loads((REFERENCE / f"{name}.json").read_text("utf-8"))["cases"]


@pytest.fixture(scope="session")
def mini() -> Any:
    from tests.tiny import mini_model

    return mini_model()


@pytest.fixture(scope="session")
def embedded() -> Any:
    return losscore.load()
