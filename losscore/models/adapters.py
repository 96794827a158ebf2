"""Adapters in peft's own format: a folder with a few trained matrices and the name of the model they belong to."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from transformers import PreTrainedModel

from losscore.errors import ModelError

ADAPTER = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
MARKER = "losscore.json"


def is_adapter(folder: Path) -> bool:
    """Whether `folder` holds an adapter and no model of its own."""
    return (folder / ADAPTER).is_file() and not (folder / "config.json").exists()


def base_of(folder: Path) -> str:
    """The model an adapter was trained on, as losscore or peft noted it. ModelError where neither did."""
    for file, key in ((MARKER, "base"), (ADAPTER, "base_model_name_or_path")):
        try:
            name = json.loads((folder / file).read_text(encoding="utf-8")).get(key)
        except (OSError, ValueError, AttributeError):
            continue
        if isinstance(name, str) and name:
            return name
    raise ModelError(f"The adapter “{folder.name}” does not say which model it belongs to: add it to its {ADAPTER}.")


def with_adapter(network: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """`network` with the adapter put into its layers, in place. ModelError where the two do not fit together."""
    from peft import PeftModel

    if not (folder / WEIGHTS).is_file():
        raise ModelError(f"The adapter “{folder.name}” has no {WEIGHTS}: save it as safetensors.")
    try:
        wrapped = PeftModel.from_pretrained(network, str(folder), is_trainable=False, local_files_only=True)
    except (AttributeError, KeyError, OSError, RuntimeError, SafetensorError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ModelError(f"The adapter “{folder.name}” does not fit its base model ({reason}).") from error
    base: Any = wrapped.get_base_model()
    adapted: PreTrainedModel = base
    return adapted


def is_adapted(network: PreTrainedModel) -> bool:
    """Whether adapters sit in the layers of `network`."""
    return any(hasattr(module, "lora_A") for module in network.modules())
