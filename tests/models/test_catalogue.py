"""What is offered: only what would load, without importing what loads it."""

import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from losscore.models import EMBEDDED, Offer, available, embedded

from .tiny import CONFIGS, put_in_cache


@pytest.fixture(autouse=True)
def nothing_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOSSCORE_CACHE", str(tmp_path / "cache"))


def test_listing_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from losscore.models import available; available(); "
        "print([name for name in ('torch', 'transformers', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("installed", "note"), [(True, "prepared once on first use"), (False, "losscore models --install")]
)
def test_the_embedded_model_comes_first(
    hub_cache: Path, monkeypatch: pytest.MonkeyPatch, installed: bool, note: str
) -> None:
    monkeypatch.setattr("losscore.models.catalogue.packaged_gguf", lambda: Path("x.gguf") if installed else None)
    (offer,) = available()
    assert (offer.name, offer.kind, offer.ready) == (EMBEDDED, "embedded", False)
    assert note in offer.note
    assert offer.bytes == embedded.DOWNLOAD_BYTES


def test_cached_models_are_offered(hub_cache: Path) -> None:
    snapshot = put_in_cache(hub_cache, "someone/tiny", CONFIGS["llama"]())
    parameters = sum(value.numel() for value in load_file(snapshot / "model.safetensors").values())
    size = (snapshot / "model.safetensors").stat().st_size
    assert available()[1:] == [
        Offer("someone/tiny", "cache", parameters, size, True, "in the local Hugging Face cache")
    ]


@pytest.mark.parametrize("spoiled", ["model.safetensors", "config.json", "tokenizer.json"])
def test_incomplete_models_are_not(hub_cache: Path, spoiled: str) -> None:
    (put_in_cache(hub_cache, "someone/tiny", CONFIGS["llama"]()) / spoiled).unlink()
    assert len(available()) == 1


@pytest.mark.parametrize(
    ("old", "new"), [("LlamaForCausalLM", "LlamaForSequenceClassification"), ('"vocab_size"', '"quantization_config"')]
)
def test_models_that_would_not_load_are_not(hub_cache: Path, old: str, new: str) -> None:
    config = put_in_cache(hub_cache, "someone/tiny", CONFIGS["llama"]()) / "config.json"
    config.write_text(config.read_text().replace(old, new))
    assert len(available()) == 1


def test_a_missing_cache_is_an_empty_one(hub_cache: Path) -> None:
    hub_cache.rmdir()
    assert len(available()) == 1
