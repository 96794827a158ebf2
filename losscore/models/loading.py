"""From a name to a running model."""

from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from losscore.errors import ModelError
from losscore.models.adapters import WEIGHTS, base_of, is_adapter, tokenizer_of, with_adapter
from losscore.models.gguf_file import read_gguf, read_header
from losscore.models.model import Model, embedding_rows
from losscore.models.named_tokenizer import check_fits, named_tokenizer, origin_of
from losscore.models.placement import check_memory, choose_device, choose_dtype, told_when_lost
from losscore.models.probe import Findings, probe
from losscore.models.progress import Progress, ignore
from losscore.models.sanity import doubts
from losscore.models.silence import silence
from losscore.models.source import Source, find, path_of
from losscore.models.weights import check_tokenizer, fingerprint, measure, read_config

_LIMITS = ("n_positions", "max_position_embeddings", "n_ctx", "max_seq_len", "seq_length")
_UNLIMITED = 1_000_000  # tokenizers without a limit say 1e30
_WINDOW = 2048
# the embedded model's answers are known, and held to by a test: asking would double its loading time
_KNOWN = Findings(vocabulary=49_152, streams=True, caches=True, notes=())
_READING = "reading the weights"
# what transformers, tokenizers and safetensors raise on files they cannot make sense of
_REFUSALS = (
    ArithmeticError,
    AttributeError,
    ImportError,
    LookupError,
    OSError,
    RuntimeError,
    SafetensorError,
    StrictDataclassError,
    TypeError,
    ValueError,
)

Named: TypeAlias = PreTrainedTokenizerBase | None
Parts = tuple[PreTrainedModel, PreTrainedTokenizerBase, dict[str, Any], list[str]]


# Tensors made in a caller's inference mode could never be fine-tuned.
@torch.inference_mode(False)
@told_when_lost()
def load(
    name: str | None = None,
    *,
    tokenizer: str | None = None,
    device: str = "auto",
    dtype: str = "float32",
    download: bool = False,
    progress: Progress | None = None,
) -> Model:
    """Load a causal language model for reading.

    `name` is None or `EMBEDDED` (the embedded model, converted on first use), a model folder, a folder with an adapter
    in peft's format (its base model is loaded first), a .gguf file, or a Hugging Face id; an id outside the local cache
    is fetched only with `download`. `tokenizer` is a folder or a cached id whose tokenizer reads the texts instead of
    the model's own, such as the original of the one that is rebuilt from a GGUF; an adapter that was trained with such
    a one is read with it again. `device` is auto, cpu, cuda or mps,
    `dtype` float32, bfloat16 or float16. Weights come from safetensors or GGUF, never from a pickle, and no code that
    lies beside them is run. Nothing but a download opens a connection.

    ModelError, one plain sentence, for whatever is missing, damaged, too large or no causal language model.
    """
    report = progress or ignore
    place = choose_device(device)
    kind, notes = choose_dtype(dtype, place)
    if name is not None and is_adapter(path_of(name)):
        return _with_adapter(path_of(name).resolve(), tokenizer, device, dtype, download, report)
    named = None if tokenizer is None else named_tokenizer(tokenizer)
    source = find(name, download=download, progress=report)
    if source.kind == "gguf":
        network, reader, faults, warned = _from_gguf(source, named, kind, place, report)
    else:
        network, reader, faults, warned = _from_folder(source, named, kind, place, report)
    _check_complete(source.name, faults)
    notes += _unused(faults)
    if named is not None:
        check_fits(reader, str(tokenizer), embedding_rows(network), source.name)
    context, context_notes = _context(network, reader)
    try:
        network = network.to(place).eval()
        with silence("trying the model", report) as warned_too:
            found = _KNOWN if source.kind == "embedded" else probe(network, source.name)
        model = Model(
            network=network,
            tokenizer=reader,
            name=source.name,
            revision=source.revision,
            device=network.device,
            dtype=kind,
            context=context,
            vocabulary=found.vocabulary,
            streams=found.streams,
            caches=found.caches,
            notes=tuple(dict.fromkeys([*notes, *context_notes, *found.notes, *warned, *warned_too])),
            origin=source.name if source.kind in ("embedded", "cache") else str(source.path.resolve()),
            tokenizer_from=tokenizer or "",
            tokenizer_origin="" if tokenizer is None else origin_of(tokenizer),
        )
        doubted = () if source.kind == "embedded" else doubts(model)
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise _too_large(source.name) from error
    return replace(model, notes=(*model.notes, *doubted)) if doubted else model


def _with_adapter(
    folder: Path, tokenizer: str | None, device: str, dtype: str, download: bool, report: Progress
) -> Model:
    name = base_of(folder)
    if is_adapter(path_of(name)):
        raise ModelError(f"The adapter “{folder.name}” belongs to another adapter: name the model underneath.")
    if tokenizer is None:
        tokenizer = tokenizer_of(folder)
    base = load(name, tokenizer=tokenizer, device=device, dtype=dtype, download=download, progress=report)
    with silence(_READING, report) as warned:
        network = with_adapter(base.network, folder).eval()
    return replace(
        base,
        network=network,
        name=folder.name,
        revision=f"{fingerprint((folder / WEIGHTS,))} on {base.name}, {base.revision}",
        notes=(*base.notes, f"An adapter is put on {base.name}.", *warned),
        origin=str(folder),
    )


def _from_folder(source: Source, named: Named, dtype: torch.dtype, device: torch.device, report: Progress) -> Parts:
    folder = source.path
    config = read_config(folder, source.name)
    _check_causal(source.name, config)
    weights = measure(folder, source.name)
    if named is None:
        check_tokenizer(folder, source.name)
    check_memory(source.name, weights.parameters, dtype, device)
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    report(_READING, None)
    try:
        with silence(_READING, report) as warned:
            tokenizer = AutoTokenizer.from_pretrained(folder, **local) if named is None else named
            network, faults = AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, use_safetensors=True, output_loading_info=True, **local
            )
    except MemoryError as error:
        raise _too_large(source.name) from error
    except _REFUSALS as error:
        raise _refused(source.name, folder, error) from error
    return network, tokenizer, faults, warned


def _from_gguf(source: Source, named: Named, dtype: torch.dtype, device: torch.device, report: Progress) -> Parts:
    check_memory(source.name, read_header(source.path).parameters, dtype, device)
    if (source.path.parent / "adapter_config.json").exists():
        raise ModelError(f"An adapter lies beside “{source.name}” and would be mixed in: move one of them elsewhere.")
    try:
        return read_gguf(source.path, dtype, report, named)
    except MemoryError as error:
        raise _too_large(source.name) from error
    except _REFUSALS as error:
        raise _refused(source.name, source.path.parent, error) from error


def _check_causal(name: str, config: dict[str, Any]) -> None:
    """Refuse what is no causal language model before anything of it is opened; the probe asks the network itself."""
    kind = config.get("model_type")
    native = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(kind)
    if native is None and config.get("auto_map"):
        raise ModelError(f"“{name}” needs code of its own to run, which losscore never runs: choose another model.")
    declared = [str(architecture) for architecture in config.get("architectures") or ()]
    usable = (native, "ForCausalLM", "LMHeadModel", "Model")
    if native is None or (declared and not any(item.endswith(end) for item in declared for end in usable if end)):
        what = declared[0] if declared else kind or "of unknown type"
        raise ModelError(
            f"“{name}” ({what}) is not a causal language model that transformers knows: "
            "choose a model that writes text."
        )
    if "is_decoder" in config and not config["is_decoder"] and native.endswith("LMHeadModel") and "bert" in str(kind):
        raise ModelError(f"“{name}” ({kind}) is not a causal language model: choose a model that writes text.")
    if config.get("quantization_config"):
        raise ModelError(f"“{name}” is stored quantised, which cannot be read here: choose the original or a GGUF.")


def _check_complete(name: str, faults: dict[str, Any]) -> None:
    """Whatever the files lack, transformers fills with random numbers."""
    missing = sorted(faults.get("missing_keys") or ())
    if missing:
        raise ModelError(
            f"The weights of “{name}” lack {len(missing)} of the model's tensors (such as {missing[0]}): "
            "get the whole model."
        )


def _unused(faults: dict[str, Any]) -> list[str]:
    """A config with too few layers loads, and gives wrong numbers."""
    unused = sorted(faults.get("unexpected_keys") or ())
    if not unused:
        return []
    return [f"This model does not use {len(unused)} of the tensors in its weights (such as {unused[0]})."]


def _context(network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, list[str]]:
    config = network.config.get_text_config()
    stated = [getattr(config, limit, None) for limit in _LIMITS] + [tokenizer.model_max_length]
    limits = [int(limit) for limit in stated if isinstance(limit, int | float) and 0 < limit < _UNLIMITED]
    if limits:
        return min(limits), []
    return _WINDOW, [f"The model states no context length: {_WINDOW} tokens are read at a time."]


def _refused(name: str, folder: Path, error: Exception) -> ModelError:
    if "trust_remote_code" in str(error):
        return ModelError(f"“{name}” needs code of its own to run, which losscore never runs: choose another model.")
    reason = " ".join(str(error).split()).replace(str(folder), name)[:160] or type(error).__name__
    return ModelError(f"“{name}” could not be loaded, its files do not fit together ({reason}): get the model again.")


def _too_large(name: str) -> ModelError:
    return ModelError(
        f"“{name}” does not fit into memory: choose a smaller model or bfloat16, or close other programs."
    )
