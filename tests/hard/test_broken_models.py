"""Model folders and names that are wrong in one way each: one plain sentence, or a note that is seen, never a guess."""

from __future__ import annotations

import gc
import json
import shutil
import threading
import weakref
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import losscore
from losscore.errors import ModelError
from losscore.models import load
from losscore.models.sanity import doubts
from tests.models import tiny_gguf
from tests.models.tiny import CONFIGS, byte_tokenizer, save

Spoil = Callable[[Path], None]


def config(**changes: Any) -> Spoil:
    def spoil(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return spoil


def writing(file: str, content: bytes) -> Spoil:
    return lambda folder: (folder / file).write_bytes(content) and None


def index(weight_map: Any) -> Spoil:
    def spoil(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "part.safetensors")
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))

    return spoil


def weights(change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Spoil:
    def spoil(folder: Path) -> None:
        save_file(change(load_file(folder / "model.safetensors")), folder / "model.safetensors", {"format": "pt"})

    return spoil


def dangling(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(folder / "gone.safetensors")


def more_tokens(folder: Path) -> None:
    tokenizer = byte_tokenizer()
    tokenizer.add_tokens(["zebra"])
    tokenizer.save_pretrained(folder)


REFUSED: dict[str, tuple[Spoil, str]] = {
    "config is a list": (writing("config.json", b"[1]"), "config.json of “model” cannot be read"),
    "config is empty": (writing("config.json", b""), "config.json of “model” cannot be read"),
    "config is not UTF-8": (writing("config.json", b'{"a": "\xe9"}'), "config.json of “model” cannot be read"),
    "config begins with a mark": (writing("config.json", b"\xef\xbb\xbf{}"), "config.json of “model” cannot be read"),
    "config is bottomless": (writing("config.json", b"[" * 100_000), "config.json of “model” cannot be read"),
    "type is a list": (config(model_type=["llama"]), "config.json of “model” cannot be read"),
    "type is a number": (config(model_type=3), "config.json of “model” cannot be read"),
    "architectures is a number": (config(architectures=5), "config.json of “model” cannot be read"),
    "architectures is a word": (config(architectures="LlamaForCausalLM"), "config.json of “model” cannot be read"),
    "more layers than weights": (config(num_hidden_layers=3), "lack 9 of the model's tensors"),
    "another vocabulary": (config(vocab_size=300), "do not fit together"),
    "a vocabulary below nought": (config(vocab_size=-3), "do not fit together"),
    "no heads": (config(num_attention_heads=0), "do not fit together"),
    "a context in words": (config(max_position_embeddings="many"), "do not fit together"),
    "an unknown activation": (config(hidden_act="unheard of"), "do not fit together"),
    "an unknown dtype": (config(dtype="float7"), "do not fit together"),
    "not a number in the config": (config(rms_norm_eps=float("nan")), "no finite logits"),
    "tokenizer is no JSON": (writing("tokenizer.json", b"{"), "do not fit together"),
    "tokenizer is an empty object": (writing("tokenizer.json", b"{}"), "do not fit together"),
    "tokenizer's config is no JSON": (writing("tokenizer_config.json", b"{"), "do not fit together"),
    "weights are empty": (writing("model.safetensors", b""), "truncated or damaged"),
    "weights point nowhere": (dangling, "has no weights"),
    "weights go by other names": (weights(lambda w: {f"x.{name}": v for name, v in w.items()}), "model's tensors"),
    "a weight is infinite": (weights(lambda w: w | {"lm_head.weight": w["lm_head.weight"] / 0}), "no finite logits"),
    "the index names a number": (index({"a": 3}), "index of “model” cannot be read"),
    "the index is a list": (index([]), "index of “model” cannot be read"),
    "the index leads to the root": (index({"a": "/etc/a.safetensors"}), "names files outside"),
    "the index leads to a pickle": (index({"a": "pytorch_model.bin"}), "names files outside"),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(CONFIGS["llama"](), tmp_path_factory.mktemp("sound") / "model")


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "model"))


def refusal(name: Path | str) -> str:
    with pytest.raises(ModelError) as caught:
        load(str(name), device="cpu")
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert sentence.endswith(".")
    assert len(sentence) < 320
    return sentence


@pytest.mark.parametrize("fault", REFUSED)
def test_refused_in_one_sentence(folder: Path, fault: str) -> None:
    spoil, words = REFUSED[fault]
    spoil(folder)
    assert words in refusal(folder)


def test_a_config_that_may_not_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shut(*_: Any, **__: Any) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", shut)
    assert "config.json of “model” cannot be read" in refusal(folder)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "The model's name is blank"),
        (" \t", "The model's name is blank"),
        ("x" * 5_000, "cannot be a model's name or path"),
        ("./" + "x" * 300, "cannot be a model's name or path"),
        ("~nobody-of-this-name/x", "cannot be a model's name or path"),
        ("a\x00b", "is neither a folder"),
        ("caf\udce9", "holds bytes that are not UTF-8: rename it"),
        ("http://example.org/model", "There is no folder"),
        ("/", "“/” has no config.json"),
    ],
)
def test_names_that_are_none(name: str, words: str) -> None:
    assert words in refusal(name)


def test_a_file_whose_name_no_export_could_spell(tmp_path: Path) -> None:
    tiny_gguf.write(tmp_path / "tiny.gguf")
    odd = tmp_path / "caf\udce9.gguf"
    (tmp_path / "tiny.gguf").rename(odd)
    assert refusal(odd).isprintable()


# What loads all the same, and what is said of it -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (config(num_hidden_layers=1), "does not use 9 of the tensors"),
        (
            weights(lambda w: w | {"extra.weight": torch.ones(3)}),
            "use 1 of the tensors in its weights",
        ),
        (weights(lambda w: w | {"lm_head.weight": w["lm_head.weight"] * 20}), "a blind guess 5.55"),
    ],
)
def test_weights_that_may_not_mean_what_they_say_are_noted(folder: Path, spoil: Spoil, words: str) -> None:
    spoil(folder)
    model = load(str(folder), device="cpu")
    assert any(words in note for note in model.notes)
    assert any(words in note for note in losscore.score(model, "a b").provenance["notes"])


def test_the_sentences_cost_is_the_networks_own(sound: Path) -> None:
    from losscore.models.sanity import SENTENCE

    model = load(str(sound), device="cpu")
    assert doubts(model) == ()
    with torch.no_grad():
        model.network.lm_head.weight *= 20
    (note,) = doubts(model)
    ids = torch.tensor([model.tokenizer(SENTENCE)["input_ids"][: model.context]])
    with torch.no_grad():
        cost = float(model.network(ids, labels=ids).loss)
    assert f"costs this model {cost:.3g} nats a token" in note


@pytest.mark.embedded
def test_nothing_is_doubted_of_a_sound_model(embedded: Any) -> None:
    assert doubts(embedded) == ()


@pytest.mark.parametrize("limit", [0, None, 10**30, "unknown"])
def test_odd_limits_of_the_tokenizer_leave_the_models(folder: Path, limit: Any) -> None:
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": limit}))
    model = load(str(folder), device="cpu")
    assert model.context == 64
    assert losscore.score(model, "a b1" * 50).summary.scored == 199


def test_a_tokenizer_that_knows_more_than_the_model_is_used_until_it_matters(folder: Path) -> None:
    more_tokens(folder)
    model = load(str(folder), device="cpu")
    assert losscore.score(model, "a horse").summary.scored == 6
    with pytest.raises(ModelError, match="use the tokenizer made for this model"):
        losscore.score(model, "a zebra")


# GGUF --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("flag", "prefix"), [(True, 1), (False, 0), (None, 0)])
def test_the_bos_of_a_gguf_is_what_its_flag_says_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: bool | None, prefix: int
) -> None:
    import gguf

    plain = gguf.GGUFWriter.add_bos_token_id

    def with_flag(self: Any, i: int) -> None:
        plain(self, i)
        if flag is not None:
            self.add_add_bos_token(flag)

    monkeypatch.setattr(gguf.GGUFWriter, "add_bos_token_id", with_flag)
    tiny_gguf.write(tmp_path / "tiny.gguf")
    model = load(str(tmp_path / "tiny.gguf"), device="cpu")
    encoding = model.encoder.encode("a")
    assert encoding.prefix == prefix
    assert ("<|x|>" in encoding.bos) == bool(prefix)
    assert model.encoder.encode("a", bos="always").prefix == 1
    assert model.encoder.encode("a", bos="never").prefix == 0


def test_a_gguf_that_does_not_say_how_text_is_cut_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gguf

    monkeypatch.setattr(gguf.GGUFWriter, "add_tokenizer_pre", lambda self, rule: None)
    tiny_gguf.write(tmp_path / "tiny.gguf")
    model = load(str(tmp_path / "tiny.gguf"), device="cpu")
    assert any("doesn't say how it cuts text" in note for note in model.notes)


def test_a_gguf_too_large_is_refused_before_its_weights_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from losscore.models import placement

    def unread(*_: Any, **__: Any) -> Any:
        raise AssertionError("weights were read")

    tiny_gguf.write(tmp_path / "tiny.gguf")
    monkeypatch.setattr(placement, "free_bytes", lambda device: 1_000)
    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_pretrained", unread)
    assert "needs about" in refusal(tmp_path / "tiny.gguf")


# What is kept, and for how long ------------------------------------------------------------------------------------


def test_a_model_that_nobody_holds_is_gone(sound: Path) -> None:
    model = load(str(sound), device="cpu")
    sheet = losscore.score(model, "a b 12", objectives=["emo"])
    gone = weakref.ref(model.network)
    del model
    gc.collect()
    assert gone() is None
    assert sheet.summary.scored == 5


@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_loaded_and_scored_in_inference_mode_a_model_can_still_be_trained(
    sound: Path, tmp_path: Path, kind: str
) -> None:
    path = sound
    if kind == "gguf":
        path = tmp_path / "tiny.gguf"
        tiny_gguf.write(path)
    with torch.inference_mode():
        model = load(str(path), device="cpu")
        inside = losscore.score(model, "a b 12")
    assert inside.rows() == losscore.score(model, "a b 12").rows()
    assert not any(tensor.is_inference() for tensor in (*model.network.parameters(), *model.network.buffers()))
    copy = deepcopy(model.network).train()
    ids = torch.tensor([[1, 2, 3]])
    copy(ids, labels=ids).loss.backward()
    assert all(parameter.grad is not None for parameter in copy.parameters())
    assert all(parameter.grad is None for parameter in model.network.parameters())


def test_two_people_who_arrive_together_load_the_model_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from app import session

    loads: list[str] = []
    both = threading.Barrier(2)

    def slowly(name: str, **_: Any) -> object:
        loads.append(name)
        threading.Event().wait(0.2)
        return object()

    monkeypatch.setattr(losscore, "load", slowly)
    found: list[object] = []

    def arrive() -> None:
        both.wait()
        found.append(session.model("a model of this test alone"))

    people = [threading.Thread(target=arrive) for _ in range(2)]
    for person in people:
        person.start()
    for person in people:
        person.join(30)
    assert loads == ["a model of this test alone"]
    assert found[0] is found[1]
