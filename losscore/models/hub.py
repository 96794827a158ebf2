"""Models named by a Hugging Face id: the local cache first, the hub only on request."""

from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import cast

from losscore.errors import ModelError
from losscore.models.progress import Progress

_WANTED = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.tiktoken"]
_UNWANTED = ["*/*", "consolidated*"]
_DECIDING = (
    "config.json",
    "tokenizer*",
    "vocab.*",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "*.model",
)


def cached(name: str) -> Path | None:
    """The newest snapshot of `name` in the local Hugging Face cache, or None. Opens no connection.

    ModelError where `name` cannot be a Hugging Face id.
    """
    from huggingface_hub import constants, try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(name, "config.json", cache_dir=constants.HF_HUB_CACHE)
    except HFValidationError as error:
        raise ModelError(
            f"“{name}” is neither a folder, a .gguf file nor a Hugging Face id like Qwen/Qwen2.5-0.5B: check the name."
        ) from error
    return Path(config).parent if isinstance(config, str) else None


def check_whole(folder: Path, name: str) -> None:
    """ModelError where the snapshot `folder` lacks files of `name` that decide how a text is read.

    A download that was cut off leaves such a one: a model without its tokenizer's settings loads, and gives other
    numbers. The hub's client keeps a list of what belongs to a snapshot; where it has kept none, nothing is said. Opens
    no connection.
    """
    from huggingface_hub import constants

    try:
        from huggingface_hub import get_cached_repo_tree
        from huggingface_hub.errors import CachedRepoTreeNotFoundError
    except ImportError:  # earlier releases keep no list
        return
    try:
        files = [file.path for file in get_cached_repo_tree(name, cache_dir=constants.HF_HUB_CACHE)]
    except CachedRepoTreeNotFoundError:
        return
    missing = [file for file in files if _decides(file) and not (folder / file).is_file()]
    if missing:
        raise ModelError(
            f"“{name}” was not downloaded whole ({len(missing)} of its files missing, such as {min(missing)}): fetch "
            f"the rest with `hf download {name}` (on the command line --download does so)."
        )


def _decides(file: str) -> bool:
    """Whether `file` is one that `fetch` takes and that tells how a text is read."""
    matching = partial(fnmatch, file)
    return "/" not in file and any(map(matching, _DECIDING)) and any(map(matching, _WANTED))


def fetch(name: str, progress: Progress) -> Path:
    """Download what losscore needs of `name` (never a pickle) and return its snapshot.

    ModelError where the model is gated, private or unknown, offers no safetensors, or cannot be reached.
    """
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    # OSError, and the errors of whichever HTTP client this release of the hub uses
    unreachable = cast(tuple[type[Exception], ...], HfHubHTTPError.__bases__)
    progress(f"downloading {name}", None)
    try:
        folder = Path(
            snapshot_download(name, cache_dir=constants.HF_HUB_CACHE, allow_patterns=_WANTED, ignore_patterns=_UNWANTED)
        )
    except GatedRepoError as error:
        raise ModelError(
            f"“{name}” is gated: accept its terms on huggingface.co and log in with `hf auth login`, then try again."
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"“{name}” does not exist on Hugging Face or is private: check the name, or log in with `hf auth login`."
        ) from error
    except unreachable as error:
        raise ModelError(
            f"“{name}” could not be downloaded: check your connection, or name a model that is on this machine."
        ) from error
    if not any(folder.glob("*.safetensors")):
        raise ModelError(f"“{name}” offers no safetensors, and losscore opens nothing else: choose another model.")
    return folder
