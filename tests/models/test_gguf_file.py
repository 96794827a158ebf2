"""GGUF files: same numbers as the model they were made of, text cut as they say, damage refused."""

import random
from pathlib import Path

import pytest
import torch

from losscore.errors import ModelError
from losscore.models import load
from losscore.models.gguf_file import read_header

from . import tiny_gguf

IDS = [(37 * index + 11) % 256 for index in range(40)]


@pytest.mark.parametrize("quantised", [False, True])
def test_a_gguf_gives_the_logits_of_the_model_it_was_made_of(
    tmp_path: Path, quantised: bool, no_network: None, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tiny.gguf"
    network = tiny_gguf.write(path, quantised=quantised)
    capfd.readouterr()
    model = load(str(path), device="cpu")
    assert capfd.readouterr() == ("", "")
    with torch.no_grad():
        expected = network(input_ids=torch.tensor([IDS])).logits[0]
    rows = torch.cat([rows for _, rows in model.blocks(IDS, piece=16)])
    torch.testing.assert_close(model.head(rows), expected, rtol=1e-4, atol=1e-4)
    assert (model.name, model.context, model.vocabulary) == ("tiny.gguf", 64, 256)
    assert model.revision.startswith("sampled sha256 ")
    assert model.notes == ()


def test_the_header_counts_parameters(tmp_path: Path) -> None:
    network = tiny_gguf.write(tmp_path / "tiny.gguf", quantised=True)
    header = read_header(tmp_path / "tiny.gguf")
    assert header.parameters == sum(parameter.numel() for parameter in network.parameters())
    assert header.pre_tokenizer == "smollm"


def test_digits_are_cut_off_before_the_rest_is_split(tmp_path: Path) -> None:
    tiny_gguf.write(tmp_path / "tiny.gguf", rule="smollm")
    tokenizer = load(str(tmp_path / "tiny.gguf"), device="cpu").tokenizer
    # under GPT-2's rule the second newline would go with the digit, and the two would not merge
    assert tokenizer.decode(tokenizer("\n\n3").input_ids[:1]) == "\n\n"


@pytest.mark.parametrize(("rule", "told"), [("gpt-2", False), ("something-new", True)])
def test_an_unknown_rule_is_told(tmp_path: Path, rule: str, told: bool) -> None:
    tiny_gguf.write(tmp_path / "tiny.gguf", rule=rule)
    model = load(str(tmp_path / "tiny.gguf"), device="cpu")
    assert any(rule in note for note in model.notes) == told
    assert len(model.tokenizer("\n\n3").input_ids) == 3


def test_an_adapter_beside_it_is_not_mixed_in(tmp_path: Path) -> None:
    tiny_gguf.write(tmp_path / "tiny.gguf")
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="An adapter lies beside"):
        load(str(tmp_path / "tiny.gguf"), device="cpu")


@pytest.mark.parametrize("keep", [0, 3, 10, 300, 4000, -1])
def test_a_truncated_gguf_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "tiny.gguf"
    tiny_gguf.write(path)
    # the file ends in padding, so cut the last tensor by more than that
    path.write_bytes(path.read_bytes()[: keep if keep >= 0 else -64])
    with pytest.raises(ModelError, match="truncated or damaged"):
        load(str(path), device="cpu")


@pytest.mark.parametrize(
    "content", [b"GGUF" + b"\xff" * 200, b"PK\x03\x04" + bytes(200), b"GGUF\x01\0\0\0" + bytes(99)]
)
def test_what_is_no_gguf_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tiny.gguf").write_bytes(content)
    with pytest.raises(ModelError, match="not a GGUF file"):
        load(str(tmp_path / "tiny.gguf"), device="cpu")


def test_a_part_of_a_split_gguf_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tiny-00001-of-00002.gguf"
    tiny_gguf.write(path)
    with pytest.raises(ModelError, match="one part of a split GGUF"):
        load(str(path), device="cpu")


def test_a_damaged_header_is_refused_or_read_never_worse(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    tiny_gguf.write(path)
    sound = path.read_bytes()
    dice = random.Random(5)
    refused = 0
    for _ in range(400):
        damaged = bytearray(sound)
        for _ in range(dice.choice([1, 8])):
            damaged[dice.randrange(4, 6000)] = dice.choice([0, 1, 9, 255, dice.randrange(256)])
        path.write_bytes(damaged)
        try:
            read_header(path)
        except ModelError:
            refused += 1
    assert refused > 100
