"""Models named by a Hugging Face id: the local cache first, the hub only on request."""

from pathlib import Path
from typing import cast

from losscore.errors import ModelError
from losscore.models.progress import Progress

_WANTED = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.tiktoken"]
_UNWANTED = ["*/*", "consolidated*"]


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
