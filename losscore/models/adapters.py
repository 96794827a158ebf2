"""Adapters in peft's own format: a folder with a few trained matrices and the name of the model they belong to."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import PreTrainedModel

from losscore.errors import ModelError
from losscore.models.source import path_of

ADAPTER = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
MARKER = "losscore.json"
READ_WITH = "read_with_tokenizer"
# What these do happens around the network, not in its layers.
_AROUND = ("XLORA", "POLY")


def is_adapter(folder: Path) -> bool:
    """Whether `folder` holds an adapter and no model of its own."""
    return (folder / ADAPTER).is_file() and not (folder / "config.json").exists()


def base_of(folder: Path) -> str:
    """The model an adapter was trained on, as losscore or peft noted it. ModelError where neither did or it is gone."""
    gone = []
    for file, key in ((MARKER, "base"), (ADAPTER, "base_model_name_or_path")):
        try:
            name = json.loads((folder / file).read_text(encoding="utf-8")).get(key)
        except (OSError, ValueError, AttributeError, RecursionError):
            continue
        if isinstance(name, str) and name.strip():
            if not _is_gone(name):
                return name
            gone.append((name, file, key))
    if gone:
        name, file, key = gone[0]
        raise ModelError(
            f"The adapter “{folder.name}” belongs to the model in {name}, which is no longer there: put it back, or "
            f"write where it is now as “{key}” into the adapter's {file}."
        )
    raise ModelError(f"The adapter “{folder.name}” does not say which model it belongs to: add it to its {ADAPTER}.")


def tokenizer_of(folder: Path) -> str | None:
    """The tokenizer an adapter was trained with, where that was not its base model's own, as losscore noted it.

    ModelError where it is gone: another one would give the adapter other ids than those it learned.
    """
    try:
        name = json.loads((folder / MARKER).read_text(encoding="utf-8")).get(READ_WITH)
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    if not isinstance(name, str) or not name.strip():
        return None
    if _is_gone(name):
        raise ModelError(
            f"The adapter “{folder.name}” was trained with the tokenizer in {name}, which is no longer there: put it "
            f"back, or name it where it is now (--tokenizer), or write that as “{READ_WITH}” into the adapter's "
            f"{MARKER}."
        )
    return name


def _is_gone(name: str) -> bool:
    """Whether a name can only be a path, and nothing is there."""
    path = path_of(name)
    return (path.is_absolute() or name.startswith(".")) and not path.exists()


def with_adapter(network: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """`network` with the adapter put into its layers, in place. ModelError where the two do not fit together."""
    from peft import PeftConfig, PeftModel

    if not (folder / WEIGHTS).is_file():
        raise ModelError(f"The adapter “{folder.name}” has no {WEIGHTS}: save it as safetensors.")
    try:
        config = PeftConfig.from_pretrained(str(folder), local_files_only=True)
        _check_kind(folder.name, config)
        options = {"is_trainable": False, "local_files_only": True}
        wrapped = PeftModel.from_pretrained(network, str(folder), config=config, **options)
        # Read once more for what the first reading does not tell.
        found = wrapped.load_adapter(str(folder), "default", **options)
    except (AttributeError, KeyError, OSError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ModelError(f"The adapter “{folder.name}” does not fit its base model ({reason}).") from error
    # What the file lacks would stay as it began, without effect; what has no place would be left out.
    missing = [name for name in found.missing_keys if "vblora_vector_bank" not in name]  # stored once, for all layers
    for what, names in (("lacking", missing), ("without a place", found.unexpected_keys)):
        if names:
            raise ModelError(
                f"The adapter “{folder.name}” does not fit its base model (tensors {what}: {len(names)}, such as "
                f"{sorted(names)[0]}): get the adapter again, or name the model that it was made for."
            )
    base: Any = wrapped.get_base_model()
    adapted: PreTrainedModel = base
    return adapted


def _check_kind(name: str, config: Any) -> None:
    kind = str(getattr(config.peft_type, "value", config.peft_type))
    # Tokens made up in front of the text, or a switch thrown by certain tokens, would be left out without a word.
    if config.is_prompt_learning or kind in _AROUND or getattr(config, "alora_invocation_tokens", None):
        raise ModelError(
            f"The adapter “{name}” ({kind}) works outside of the model's layers, which losscore cannot read: choose "
            "one that sits in them, such as LoRA."
        )


def is_adapted(network: PreTrainedModel) -> bool:
    """Whether adapters of any kind sit in the layers of `network`."""
    return any(type(module).__module__.startswith("peft.") for module in network.modules())
