"""The models a person can pick without typing a path. Needs neither torch nor transformers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from losscore.errors import ModelError
from losscore.models.embedded import (
    DOWNLOAD_BYTES,
    EMBEDDED,
    PARAMETERS,
    converted_folder,
    is_converted,
    packaged_gguf,
)
from losscore.models.hub import check_whole
from losscore.models.weights import check_tokenizer, measure, read_config

_CAUSAL = ("ForCausalLM", "LMHeadModel")


@dataclass(frozen=True)
class Offer:
    """One model on offer.

    `parameters` counts stored values, `bytes` the weights' size on disk (for the embedded model before its
    conversion: of its GGUF), `ready` means it loads at once, `note` says in a few words where it stands.
    """

    name: str
    kind: Literal["embedded", "cache"]
    parameters: int | None
    bytes: int
    ready: bool
    note: str


def available() -> list[Offer]:
    """The embedded model, then the causal language models with safetensors in the local Hugging Face cache."""
    return [_embedded(), *_cache()]


def _embedded() -> Offer:
    folder = converted_folder()
    if is_converted(folder):
        size = (folder / "model.safetensors").stat().st_size
        return Offer(EMBEDDED, "embedded", PARAMETERS, size, True, "ready")
    if packaged_gguf() is not None:
        note = "installed; prepared once on first use, in about 15 seconds"
        return Offer(EMBEDDED, "embedded", PARAMETERS, DOWNLOAD_BYTES, False, note)
    note = "not installed: run `losscore models --install` (98 MB, once)"
    return Offer(EMBEDDED, "embedded", PARAMETERS, DOWNLOAD_BYTES, False, note)


def _cache() -> list[Offer]:
    from huggingface_hub import CacheNotFound, constants, scan_cache_dir

    try:
        repositories = scan_cache_dir(constants.HF_HUB_CACHE).repos
    except (CacheNotFound, ValueError):
        return []
    offers = []
    for repository in sorted(repositories, key=lambda repository: repository.repo_id.lower()):
        main = [revision for revision in repository.revisions if "main" in revision.refs]
        if repository.repo_type == "model" and main:
            offer = _offer(repository.repo_id, Path(main[0].snapshot_path))
            offers += [offer] if offer else []
    return offers


def _offer(name: str, folder: Path) -> Offer | None:
    """None for what could not be loaded: another task, pickles only, quantised, incomplete."""
    try:
        config = read_config(folder, name)
        if "quantization_config" in config or not any(
            str(architecture).endswith(_CAUSAL) for architecture in config.get("architectures") or ()
        ):
            return None
        check_tokenizer(folder, name)
        check_whole(folder, name)
        weights = measure(folder, name)
    except ModelError:
        return None
    return Offer(name, "cache", weights.parameters, weights.bytes, True, "in the local Hugging Face cache")
