"""A trained copy on the disk: the adapter in peft's own format, or the whole model; whole or not at all."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from losscore.errors import LosscoreError
from losscore.finetuning.copies import TrainingCopy
from losscore.models.adapters import MARKER, READ_WITH
from losscore.models.embedded import EMBEDDED, plain
from losscore.models.progress import ignore
from losscore.models.silence import silence

if TYPE_CHECKING:
    from losscore.models import Model

# Where others find what the embedded model is a 4-bit copy of.
_PUBLISHED = {EMBEDDED: "HuggingFaceTB/SmolLM2-135M-Instruct"}


def save_copy(copy: TrainingCopy, base: Model, provenance: Mapping[str, Any], folder: Path) -> None:
    """Write `copy` to `folder`, which may exist only if it is empty. Raises LosscoreError otherwise."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise LosscoreError(f"{folder} exists and is not an empty folder: name another one.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Not by tempfile, whose folders nobody else may read.
        partial = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:12]}.partial")
        partial.mkdir()
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        with silence("saving", ignore):
            _write(copy, base, provenance, partial)
        if folder.exists():
            folder.rmdir()
        partial.rename(folder)
    except OSError as error:
        raise _unwritable(folder, error) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write(copy: TrainingCopy, base: Model, provenance: Mapping[str, Any], folder: Path) -> None:
    if copy.adapter is not None:
        published = _PUBLISHED.get(base.name, base.origin or base.name)
        for config in copy.adapter.peft_config.values():
            config.base_model_name_or_path = published
        # "auto" would look the base model up on the internet; embeddings are never adapted here.
        copy.adapter.save_pretrained(str(folder), save_embedding_layers=False)
        # peft's own card is a form to fill in.
        (folder / "README.md").unlink(missing_ok=True)
    else:
        network = copy.network
        (plain(network) if getattr(network.config, "quantization_config", None) else network).save_pretrained(folder)
        base.tokenizer.save_pretrained(folder)
    notes = {**provenance, "base": base.origin or base.name}
    if copy.adapter is not None and base.tokenizer_origin:
        notes[READ_WITH] = base.tokenizer_origin
    marker = json.dumps(notes, ensure_ascii=False, indent=1, allow_nan=False)
    (folder / MARKER).write_text(marker, encoding="utf-8")


def _unwritable(folder: Path, error: OSError) -> LosscoreError:
    return LosscoreError(f"{folder} could not be written ({error.strerror or 'unknown reason'}): name another folder.")
