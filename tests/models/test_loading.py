"""What is refused, with which sentence, and that nothing dangerous is touched on the way."""

import json
import logging
import pickle
import shutil
import struct
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
)

from losscore.errors import ModelError
from losscore.models import load, placement
from losscore.models.source import find

from .tiny import CONFIGS, SIZE, byte_tokenizer, put_in_cache, save

Shelf = Callable[[str], Path]


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def is_one_plain_sentence(message: str) -> bool:
    return "\n" not in message and message.endswith(".") and "Traceback" not in message and len(message) < 320


def refusal(name: Path | str, **options: Any) -> str:
    with pytest.raises(ModelError) as caught:
        load(str(name), device="cpu", **options)
    message = str(caught.value)
    assert is_one_plain_sentence(message), message
    return message


class Trap:
    """A pickle that would leave a file behind if it were ever opened."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


# --- what loads


def test_a_folder_loads_without_a_connection(shelf: Shelf, no_network: None) -> None:
    model = load(str(shelf("llama")), device="cpu")
    assert model.name == "llama"
    assert model.context == 64
    assert model.vocabulary == SIZE
    assert model.dtype == torch.float32
    assert model.device == torch.device("cpu")
    assert model.notes == ()


def test_a_cached_id_loads_without_a_connection(hub_cache: Path, no_network: None) -> None:
    put_in_cache(hub_cache, "someone/tiny", CONFIGS["llama-tied"]())
    model = load("someone/tiny", device="cpu")
    assert model.name == "someone/tiny"
    assert model.revision == "0123456789abcdef0123456789abcdef01234567"
    # a complete model is not looked up again, even where a download is allowed
    assert load("someone/tiny", device="cpu", download=True).revision == model.revision


def test_loading_is_silent(shelf: Shelf, capfd: pytest.CaptureFixture[str]) -> None:
    folder = shelf("gpt2")  # its own saving shows a bar
    capfd.readouterr()
    load(str(folder), device="cpu")
    assert capfd.readouterr() == ("", "")


def test_the_librarys_warnings_become_notes(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    plainly = AutoTokenizer.from_pretrained

    def warning(*args: Any, **kwargs: Any) -> Any:
        for _ in range(2):
            logging.getLogger("transformers.tokenization").warning("This tokenizer is odd.\nMore about it.")
        warnings.warn("It really is.", UserWarning, stacklevel=1)
        print("from elsewhere", file=sys.stderr)
        return plainly(*args, **kwargs)

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", warning)
    capfd.readouterr()
    assert load(str(tiny), device="cpu").notes == ("This tokenizer is odd.", "It really is.")
    assert capfd.readouterr() == ("", "from elsewhere\n")  # another thread's words are not swallowed


def test_progress_is_told(shelf: Shelf) -> None:
    told: list[tuple[str, float | None]] = []
    load(str(shelf("llama")), device="cpu", progress=lambda message, fraction: told.append((message, fraction)))
    assert told[0] == ("reading the weights", None)
    assert told[-1] == ("reading the weights", 1.0)


def test_the_revision_follows_the_weights(tiny: Path) -> None:
    before = load(str(tiny), device="cpu").revision
    assert before.startswith("sampled sha256 ")
    assert load(str(tiny), device="cpu").revision == before
    weights = load_file(tiny / "model.safetensors")
    weights["model.norm.weight"][0] += 1
    save_file(weights, tiny / "model.safetensors", metadata={"format": "pt"})
    assert load(str(tiny), device="cpu").revision != before


@pytest.mark.parametrize("limit", [48, 10**30])
def test_the_context_is_the_smallest_sane_limit(tiny: Path, limit: int) -> None:
    edit(tiny / "tokenizer_config.json", model_max_length=limit)
    assert load(str(tiny), device="cpu").context == min(limit, 64)


def test_a_model_without_a_limit_says_which_window_it_gets(shelf: Shelf) -> None:
    model = load(str(shelf("mamba")), device="cpu")
    assert model.context == 2048
    assert any("2048 tokens" in note for note in model.notes)


def test_tensors_nobody_needs_do_no_harm(tiny: Path) -> None:
    weights = load_file(tiny / "model.safetensors")
    save_file(weights | {"extra.weight": torch.ones(3)}, tiny / "model.safetensors", metadata={"format": "pt"})
    assert load(str(tiny), device="cpu").streams


# --- names


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("./nowhere", "There is no folder"),
        ("~/nowhere/at/all", "There is no folder"),
        ("nowhere.gguf", "There is no file"),
        ("someone/absent", "is not on this machine"),
        ("not a name", "is neither a folder"),
    ],
)
def test_names_that_lead_nowhere(hub_cache: Path, no_network: None, name: str, words: str) -> None:
    assert words in refusal(name)


def test_a_file_that_is_no_gguf(tiny: Path) -> None:
    assert "is not a .gguf file" in refusal(tiny / "model.safetensors")


# --- folders


def test_a_folder_without_config(tiny: Path) -> None:
    (tiny / "config.json").unlink()
    assert "“tiny” has no config.json" in refusal(tiny)


def test_a_folder_with_a_broken_config(tiny: Path) -> None:
    (tiny / "config.json").write_text('{"model_type": ')
    assert "config.json of “tiny” cannot be read" in refusal(tiny)


def test_a_folder_without_weights(tiny: Path) -> None:
    (tiny / "model.safetensors").unlink()
    assert "“tiny” has no weights" in refusal(tiny)


def test_a_folder_without_tokenizer(tiny: Path) -> None:
    (tiny / "tokenizer.json").unlink()
    assert "“tiny” has no tokenizer" in refusal(tiny)


def test_a_folder_of_an_adapter(tiny: Path) -> None:
    (tiny / "adapter_config.json").write_text("{}")
    assert "holds an adapter" in refusal(tiny)


@pytest.mark.parametrize("file", ["pytorch_model.bin", "model.pt", "consolidated.00.pth", "model.ckpt"])
def test_a_pickle_is_refused_and_never_opened(tiny: Path, file: str) -> None:
    mark = tiny / "opened"
    (tiny / "model.safetensors").unlink()
    (tiny / file).write_bytes(pickle.dumps(Trap(mark)))
    assert "only as a pickle" in refusal(tiny)
    assert not mark.exists()
    pickle.loads((tiny / file).read_bytes())
    assert mark.exists()  # the trap works


def test_a_pickle_beside_safetensors_is_left_alone(tiny: Path) -> None:
    mark = tiny / "opened"
    (tiny / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(mark)))
    load(str(tiny), device="cpu")
    assert not mark.exists()


def test_an_index_that_leads_out_of_the_folder(tiny: Path) -> None:
    (tiny / "model.safetensors").unlink()
    (tiny / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../else.safetensors"}}))
    assert "files outside" in refusal(tiny)


def test_an_index_with_a_missing_part(tiny: Path) -> None:
    (tiny / "model.safetensors").rename(tiny / "model-00001-of-00002.safetensors")
    parts = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (tiny / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    assert "lacks 1 of its 2 weight files" in refusal(tiny)


@pytest.mark.parametrize("keep", [4, 200, -100])
def test_truncated_safetensors(tiny: Path, keep: int) -> None:
    path = tiny / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    assert "truncated or damaged" in refusal(tiny)


def test_corrupt_safetensors(tiny: Path) -> None:
    (tiny / "model.safetensors").write_bytes(struct.pack("<Q", 20) + b"not JSON by any means" + bytes(100))
    assert "truncated or damaged" in refusal(tiny)


@pytest.mark.parametrize("lost", ["lm_head.weight", "model.embed_tokens.weight", "model.layers.1.mlp.up_proj.weight"])
def test_missing_tensors_are_never_made_up(tiny: Path, lost: str) -> None:
    weights = load_file(tiny / "model.safetensors")
    del weights[lost]
    save_file(weights, tiny / "model.safetensors", metadata={"format": "pt"})
    assert f"lack 1 of the model's tensors (such as {lost})" in refusal(tiny)


def test_a_tied_head_is_not_missing(shelf: Shelf) -> None:
    assert "lm_head.weight" not in load_file(shelf("llama-tied") / "model.safetensors")
    assert load(str(shelf("llama-tied")), device="cpu").streams


def test_weights_of_another_shape(tiny: Path) -> None:
    edit(tiny / "config.json", hidden_size=64)
    assert "do not fit together" in refusal(tiny)


def test_weights_that_are_not_numbers(tiny: Path) -> None:
    weights = load_file(tiny / "model.safetensors")
    weights["model.norm.weight"][:] = float("nan")
    save_file(weights, tiny / "model.safetensors", metadata={"format": "pt"})
    assert "no finite logits" in refusal(tiny)


# --- architectures


def test_an_encoder_decoder(tmp_path: Path) -> None:
    network = T5ForConditionalGeneration(
        T5Config(vocab_size=SIZE, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    )
    network.save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    assert "(T5ForConditionalGeneration) is not a causal language model" in refusal(tmp_path)


@pytest.mark.parametrize("kind", [BertForMaskedLM, BertLMHeadModel])
def test_an_encoder(tmp_path: Path, kind: type[BertForMaskedLM]) -> None:
    config = BertConfig(
        vocab_size=SIZE, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    kind(config).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    assert "is not a causal language model" in refusal(tmp_path)


def test_a_network_that_sees_the_future(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names can lie; the network is asked."""
    from transformers import LlamaForCausalLM

    plain = LlamaForCausalLM.forward

    def reversed_too(self: LlamaForCausalLM, input_ids: torch.Tensor, use_cache: bool = False) -> Any:
        out = plain(self, input_ids=input_ids)
        out.logits = out.logits + plain(self, input_ids=input_ids.flip(1)).logits.flip(1)
        return out

    monkeypatch.setattr(LlamaForCausalLM, "forward", reversed_too)
    assert "see later ones" in refusal(tiny)


def test_code_of_its_own_is_never_run(tiny: Path) -> None:
    mark = tiny / "ran"
    (tiny / "modeling_own.py").write_text(f"open({str(mark)!r}, 'w')\nclass Own: pass\n")
    own = {"AutoConfig": "modeling_own.Own", "AutoModelForCausalLM": "modeling_own.Own"}
    edit(tiny / "config.json", model_type="own", architectures=["OwnForCausalLM"], auto_map=own)
    assert "needs code of its own" in refusal(tiny)
    assert not mark.exists()


def test_code_of_the_tokenizers_own_is_never_run(tiny: Path) -> None:
    mark = tiny / "ran"
    (tiny / "tokenization_own.py").write_text(f"open({str(mark)!r}, 'w')\nclass Own: pass\n")
    edit(
        tiny / "tokenizer_config.json",
        tokenizer_class="OwnTokenizer",
        auto_map={"AutoTokenizer": ["tokenization_own.Own", "tokenization_own.Own"]},
    )
    assert "needs code of its own" in refusal(tiny)
    assert not mark.exists()


def test_an_unknown_architecture(tiny: Path) -> None:
    edit(tiny / "config.json", model_type="own", architectures=["OwnForCausalLM"])
    assert "(OwnForCausalLM) is not a causal language model that transformers knows" in refusal(tiny)


def test_quantised_weights(tiny: Path) -> None:
    edit(tiny / "config.json", quantization_config={"quant_method": "gptq", "bits": 4})
    assert "stored quantised" in refusal(tiny)


# --- device, dtype, memory


@pytest.mark.parametrize("dtype", ["auto", "float64", "half", ""])
def test_unknown_dtypes(dtype: str) -> None:
    assert "choose float32, bfloat16 or float16" in refusal("unread", dtype=dtype)


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cpu:1", "cuda:99", "meta"])
def test_unknown_devices(device: str) -> None:
    with pytest.raises(ModelError, match=r"There is no device|This machine has no device"):
        load("unread", device=device)


def test_float16_runs_in_float32_on_a_cpu(shelf: Shelf) -> None:
    model = load(str(shelf("llama")), device="cpu", dtype="float16")
    assert model.dtype == torch.float32
    assert next(model.network.parameters()).dtype == torch.float32
    assert any("runs in float32" in note for note in model.notes)


def test_a_model_too_large_is_refused_before_its_weights_are_read(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = sum(value.numel() for value in load_file(shelf("llama") / "model.safetensors").values())
    needed = parameters * 4 * 1.2

    def unread(*_: Any, **__: Any) -> Any:
        raise AssertionError("weights were read")

    monkeypatch.setattr(placement, "free_bytes", lambda device: int(needed) - 1)
    with monkeypatch.context() as patch:
        patch.setattr("transformers.AutoModelForCausalLM.from_pretrained", unread)
        assert "needs about 0.0 GB in float32" in refusal(shelf("llama"))
    assert load(str(shelf("llama")), device="cpu", dtype="bfloat16").dtype == torch.bfloat16
    monkeypatch.setattr(placement, "free_bytes", lambda device: int(needed) + 1)
    load(str(shelf("llama")), device="cpu")


# --- the hub


class Response:
    """As much of an HTTP response as the hub's errors look at."""

    status_code = 403
    headers: dict[str, str] = {}  # noqa: RUF012
    request = None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("GatedRepoError", "is gated: accept its terms"),
        ("RepositoryNotFoundError", "does not exist on Hugging Face or is private"),
        ("HfHubHTTPError", "could not be downloaded"),
        ("LocalEntryNotFoundError", "could not be downloaded"),
        ("OfflineModeIsEnabled", "could not be downloaded"),
    ],
)
def test_the_hubs_refusals(hub_cache: Path, monkeypatch: pytest.MonkeyPatch, error: str, words: str) -> None:
    from huggingface_hub import errors

    kind = getattr(errors, error)
    raised = kind("no", response=Response()) if issubclass(kind, errors.HfHubHTTPError) else kind("no")

    def refuse(*_: Any, **__: Any) -> Any:
        raise raised

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    assert words in refusal("someone/absent", download=True)


def test_without_permission_nothing_is_downloaded(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **_: asked.append(name))
    assert "hf download someone/absent" in refusal("someone/absent")
    assert asked == []


def test_a_download_takes_no_pickles(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub.utils import filter_repo_objects

    offered = ["config.json", "model.safetensors", "pytorch_model.bin", "onnx/model.json", "consolidated.safetensors"]
    taken: list[str] = []

    def download(name: str, *, cache_dir: str, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        taken.extend(filter_repo_objects(offered, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns))
        return str(put_in_cache(hub_cache, name, CONFIGS["llama"]()))

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert load("someone/new", device="cpu", download=True).name == "someone/new"
    assert taken == ["config.json", "model.safetensors"]


def test_a_repository_of_pickles_only(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(name: str, **_: Any) -> str:
        snapshot = put_in_cache(hub_cache, name, CONFIGS["llama"]())
        (snapshot / "model.safetensors").unlink()
        return str(snapshot)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert "offers no safetensors" in refusal("someone/old", download=True)


def test_messages_name_the_model_not_its_commit(hub_cache: Path) -> None:
    snapshot = put_in_cache(hub_cache, "someone/tiny", CONFIGS["llama"]())
    (snapshot / "tokenizer.json").unlink()
    assert "“someone/tiny” has no tokenizer" in refusal("someone/tiny")


def test_a_folder_goes_before_an_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(CONFIGS["llama"](), tmp_path / "gpt2")
    monkeypatch.chdir(tmp_path)
    assert find("gpt2", download=True, progress=lambda *_: None).kind == "folder"
    shutil.rmtree(tmp_path / "gpt2")
