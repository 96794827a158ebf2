"""Adapters of others: those that sit in the layers read as peft reads them, all else is refused in one sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import losscore
from losscore.errors import ModelError
from losscore.finetuning import FineTune
from tests.models.tiny import CONFIGS, save

IDS = torch.tensor([[5, 9, 200, 31, 7, 8]])
LAYERS = {
    "lora": peft.LoraConfig(r=4),
    "lora on the head": peft.LoraConfig(r=4, target_modules=["lm_head"]),
    "lora on the embedding": peft.LoraConfig(r=4, target_modules=["embed_tokens"]),
    "dora": peft.LoraConfig(r=4, use_dora=True),
    "a head of its own": peft.LoraConfig(r=4, modules_to_save=["lm_head"]),
    "ia3": peft.IA3Config(),
    "loha": peft.LoHaConfig(r=4, target_modules=["q_proj"]),
    "vera": peft.VeraConfig(r=4),
    "llama adapter": peft.AdaptionPromptConfig(adapter_len=4, adapter_layers=1),
}
AROUND = {
    "prompt": peft.PromptTuningConfig(num_virtual_tokens=4),
    "p-tuning": peft.PromptEncoderConfig(num_virtual_tokens=4),
    "prefix": peft.PrefixTuningConfig(num_virtual_tokens=4),
    "poly": peft.PolyConfig(r=4, n_tasks=2, n_skills=2, target_modules=["q_proj"]),
    "switched lora": peft.LoraConfig(r=4, alora_invocation_tokens=[5, 9], task_type="CAUSAL_LM"),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(CONFIGS["llama-tied"](), tmp_path_factory.mktemp("models") / "base")


def made(base: Path, config: Any, folder: Path) -> torch.Tensor:
    """An adapter of that kind that changes much, saved by peft; peft's logits with it."""
    config.task_type = "CAUSAL_LM"
    torch.manual_seed(3)
    wrapped = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), config).eval()
    with torch.no_grad():
        for parameter in wrapped.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.3)
        tasks = {"task_ids": torch.tensor([0])} if isinstance(config, peft.PolyConfig) else {}
        logits: torch.Tensor = wrapped(input_ids=IDS, **tasks).logits
    wrapped.save_pretrained(folder)
    return logits


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", LAYERS)
def test_what_sits_in_the_layers_reads_as_with_peft_and_is_not_trained_on_top_of(base, tmp_path, kind):
    expected = made(base, LAYERS[kind], tmp_path / "adapter")
    model, plain = losscore.load(str(tmp_path / "adapter")), losscore.load(str(base))
    with torch.no_grad():
        assert torch.equal(model.network(IDS).logits, expected)
        assert (expected - plain.network(IDS).logits).abs().max() > 0.1
        rows = torch.cat([rows for _, rows in model.blocks(IDS[0].tolist())])
        torch.testing.assert_close(model.head(rows), expected[0], rtol=1e-5, atol=1e-5)
    with pytest.raises(ModelError, match="fine-tuned already"):
        FineTune(model, "They cost 26 euros.", method="full")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", AROUND)
def test_what_works_outside_of_the_layers_is_refused_not_left_out(base, tmp_path, kind):
    made(base, AROUND[kind], tmp_path / "adapter")
    with pytest.raises(ModelError, match="outside of the model's layers"):
        losscore.load(str(tmp_path / "adapter"))


def test_tensors_that_are_lacking_or_have_no_place_are_refused(base, tmp_path):
    made(base, LAYERS["lora"], tmp_path / "adapter")
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    whole = load_file(file)
    some = dict(list(whole.items())[:-3])
    renamed = {f"other.{name}": tensor for name, tensor in whole.items()}
    deeper = whole | {name.replace("layers.1", "layers.7"): tensor.clone() for name, tensor in whole.items()}
    for tensors, said in ((some, "lacking: 3"), (renamed, "lacking: 8"), (deeper, "without a place: 4")):
        save_file(tensors, file, {"format": "pt"})
        with pytest.raises(ModelError, match=said):
            losscore.load(str(tmp_path / "adapter"))


def test_a_base_that_has_moved_is_named_with_what_to_do(base, tmp_path):
    moved, adapter = tmp_path / "moved", tmp_path / "adapter"
    shutil.copytree(base, tmp_path / "base")
    FineTune(losscore.load(str(tmp_path / "base")), "They cost 26", steps=0).save(adapter)
    (tmp_path / "base").rename(moved)
    with pytest.raises(ModelError) as caught:
        losscore.load(str(adapter))
    assert str(caught.value) == (
        f"The adapter “adapter” belongs to the model in {tmp_path / 'base'}, which is no longer there: put it back, "
        "or write where it is now as “base” into the adapter's losscore.json."
    )
    marker = json.loads((adapter / "losscore.json").read_text())
    (adapter / "losscore.json").write_text(json.dumps(marker | {"base": str(moved)}))
    assert losscore.load(str(adapter)).name == "adapter"
    # Where only peft's own file was put right, that will do; where it alone is there, it is the one named.
    (adapter / "losscore.json").write_text(json.dumps(marker))
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": str(moved)}))
    assert losscore.load(str(adapter)).name == "adapter"
    (adapter / "losscore.json").unlink()
    (adapter / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": "./nowhere"}))
    with pytest.raises(ModelError, match="“base_model_name_or_path” into the adapter's adapter_config"):
        losscore.load(str(adapter))


@pytest.mark.parametrize("name", ["llama-tied", "gpt2"])
@pytest.mark.parametrize("method", ["lora", "full"])
def test_saved_and_loaded_again_the_logits_are_the_same_to_the_bit(tmp_path, name, method):
    base = save(CONFIGS[name](), tmp_path / "base")
    tuning = FineTune(losscore.load(str(base)), "They cost 26 euros.", method=method, steps=2, lr=1e-2)
    list(tuning)
    tuning.save(tmp_path / "tuned")
    again = losscore.load(str(tmp_path / "tuned")).network
    with torch.no_grad():
        assert torch.equal(again(IDS).logits, tuning.tuned("tuned").network(IDS).logits)
    assert again.get_input_embeddings().weight is again.get_output_embeddings().weight
