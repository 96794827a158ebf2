"""Tiny models on disk, a Hugging Face cache of one's own, and a machine without a network."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .tiny import CONFIGS, save


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folders of saved tiny models, by name; made once, so tests must not change them."""
    root = tmp_path_factory.mktemp("shelf")

    def folder(name: str) -> Path:
        path = root / name
        return path if path.exists() else save(CONFIGS[name](), path)

    return folder


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A folder with a tiny Llama that a test may spoil."""
    return save(CONFIGS["llama"](), tmp_path / "tiny")


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hugging Face cache that stands in for the person's own."""
    cache = tmp_path / "hub"
    cache.mkdir()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    return cache
