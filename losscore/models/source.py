"""Where a named model lies on the disk."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from losscore.errors import ModelError
from losscore.models.embedded import EMBEDDED, GGUF_SHA256, prepare_embedded
from losscore.models.hub import cached, check_whole, fetch
from losscore.models.progress import Progress
from losscore.models.weights import check_tokenizer, fingerprint, weight_files


@dataclass(frozen=True)
class Source:
    """A model found: `path` is a folder, or a file where `kind` is "gguf"; `name` is what to call it."""

    kind: Literal["embedded", "folder", "gguf", "cache"]
    name: str
    path: Path

    @property
    def revision(self) -> str:
        """What identifies the weights: a commit, or a digest of the files, named as such."""
        if self.kind == "embedded":
            return f"gguf sha256 {GGUF_SHA256[:12]}"
        if self.kind == "cache":
            return self.path.name
        if self.kind == "gguf":
            return fingerprint((self.path,))
        return fingerprint((self.path / "config.json", *weight_files(self.path, self.name)))


def find(name: str | None, *, download: bool, progress: Progress) -> Source:
    """Resolve `name`: the embedded model, a folder, a .gguf file, or a Hugging Face id, in this order.

    Only an id that is not in the local cache opens a connection, and only with `download`. ModelError where nothing
    is found.
    """
    if name is None or name == EMBEDDED:
        return Source("embedded", EMBEDDED, prepare_embedded(progress))
    path = path_of(name)
    if path.is_dir():
        return Source("folder", path.resolve().name or str(path.resolve()), path)
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ModelError(f"“{path.name}” is not a .gguf file: name the folder of the model instead.")
        return Source("gguf", path.name, path.resolve())
    if path.suffix.lower() == ".gguf":
        raise ModelError(f"There is no file “{name}”: check the path.")
    if name.startswith((".", "~", "/")) or "\\" in name or name.count("/") > 1:
        raise ModelError(f"There is no folder “{name}”: check the path.")
    folder = cached(name)
    if download and not (folder and _is_whole(folder, name)):
        folder = fetch(name, progress)
    if folder is None:
        raise ModelError(
            f"“{name}” is not on this machine: fetch it first with `hf download {name}` (on the command line "
            "--download does so), or name another model."
        )
    check_whole(folder, name)
    return Source("cache", name, folder)


def path_of(name: str) -> Path:
    """`name` as a path. ModelError where it is blank, no path at all, or not UTF-8, which no export could spell."""
    if not name.strip():
        raise ModelError("The model's name is blank: name a model, a folder or a .gguf file.")
    try:
        name.encode()
        path = Path(name).expanduser()
        path.exists()
    except UnicodeEncodeError as error:
        shown = name.encode("utf-8", "replace").decode()
        raise ModelError(f"The name “{shown}” holds bytes that are not UTF-8: rename it.") from error
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelError(f"“{name[:80]}” cannot be a model's name or path: check it.") from error
    return path


def _is_whole(folder: Path, name: str) -> bool:
    try:
        weight_files(folder, name)
        check_tokenizer(folder, name)
        check_whole(folder, name)
    except ModelError:
        return False
    return True
