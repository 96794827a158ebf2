"""What a model folder holds: formats, sizes, and whether it may be opened at all.

Everything here is decided from names, JSON and safetensors headers: no weight is read and no pickle is opened.
"""

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from losscore.errors import ModelError

_PICKLES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"})
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "tekken.json")
_SAMPLE = 1 << 20


@dataclass(frozen=True)
class Weights:
    """The safetensors files of one model folder.

    `parameters` counts stored values (a tied head once), `bytes` is their size on disk.
    """

    files: tuple[Path, ...]
    parameters: int
    bytes: int


def read_config(folder: Path, name: str) -> dict[str, Any]:
    """The folder's config.json. ModelError where it is missing, not a JSON object, or beside an adapter.

    `name` is what messages call the model, here and below.
    """
    path = folder / "config.json"
    if (folder / "adapter_config.json").is_file():
        raise ModelError(f"“{name}” holds an adapter, not just a model: merge it into its base model first.")
    if not path.is_file():
        if any(folder.glob("*.gguf")):
            raise ModelError(f"“{name}” has no config.json: name the .gguf file in it, not the folder.")
        raise ModelError(f"“{name}” has no config.json, so it is not a model folder: choose another folder.")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        config = None
    if not isinstance(config, dict) or not _is_typed(config):
        raise ModelError(f"The config.json of “{name}” cannot be read: get the model again.")
    return config


def _is_typed(config: dict[str, Any]) -> bool:
    """Whether the entries that decide what the model is are what they should be."""
    names = config.get("architectures") or []
    return (
        isinstance(config.get("model_type", ""), str)
        and isinstance(names, list)
        and all(isinstance(name, str) for name in names)
    )


def weight_files(folder: Path, name: str) -> tuple[Path, ...]:
    """The safetensors files that make up the model, each of them present.

    ModelError where the folder has only pickled weights, none, or an index that names files it lacks.
    """
    index = folder / _INDEX
    if (folder / _SINGLE).is_file():
        return (folder / _SINGLE,)
    if index.is_file():
        return _sharded(folder, index, name)
    if any(path.suffix in _PICKLES for path in folder.iterdir()):
        raise ModelError(
            f"“{name}” has its weights only as a pickle, which can run code when opened: "
            "convert it to safetensors, or choose a model that has them."
        )
    raise ModelError(f"“{name}” has no weights (model.safetensors): get the whole model.")


def _sharded(folder: Path, index: Path, name: str) -> tuple[Path, ...]:
    try:
        shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        outside = [shard for shard in shards if shard != Path(shard).name or not shard.endswith(".safetensors")]
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise ModelError(f"The weights' index of “{name}” cannot be read: get the model again.") from error
    if outside:
        raise ModelError(f"The weights' index of “{name}” names files outside its safetensors: do not use it.")
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing or not shards:
        raise ModelError(f"“{name}” lacks {len(missing)} of its {len(shards)} weight files: get the whole model.")
    return tuple(folder / shard for shard in shards)


def measure(folder: Path, name: str) -> Weights:
    """Count the parameters from the safetensors headers. ModelError where a file is truncated or corrupt."""
    from safetensors import SafetensorError, safe_open

    files = weight_files(folder, name)
    parameters = 0
    for path in files:
        try:
            with safe_open(path, "numpy") as tensors:
                parameters += sum(math.prod(tensors.get_slice(key).get_shape()) for key in tensors.keys())  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ModelError(
                f"The weights of “{name}” are truncated or damaged ({path.name}): get the model again."
            ) from error
    return Weights(files, parameters, sum(path.stat().st_size for path in files))


def check_tokenizer(folder: Path, name: str) -> None:
    """ModelError where the folder has no tokenizer files."""
    if not any((folder / name).is_file() for name in _TOKENIZERS) and not any(folder.glob("*.tiktoken")):
        raise ModelError(f"“{name}” has no tokenizer: put the model's tokenizer files beside its weights.")


def fingerprint(files: tuple[Path, ...]) -> str:
    """A short identity that costs no full read: SHA-256 over each file's size, first and last MiB."""
    digest = hashlib.sha256()
    for path in files:
        size = path.stat().st_size
        digest.update(size.to_bytes(8, "little"))
        with path.open("rb") as stream:
            digest.update(stream.read(_SAMPLE))
            if size > _SAMPLE:
                stream.seek(max(_SAMPLE, size - _SAMPLE))
                digest.update(stream.read(_SAMPLE))
    return f"sampled sha256 {digest.hexdigest()[:12]}"
