"""The README says what the code does."""

import re
import subprocess
import sys

import pytest
import torch

from tests.readme import README, ROOT, rendered

TEXT = README.read_text("utf-8")


def test_the_generated_tables_and_the_tree_are_up_to_date():
    assert rendered(TEXT) == TEXT, "run `python -m tests.readme`"


def test_every_picture_and_file_it_names_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        if "://" not in target:
            assert (ROOT / target).exists(), target


def test_it_opens_with_a_screenshot_then_the_two_commands():
    picture, commands = TEXT.index("!["), TEXT.index("make app")
    assert picture < 40
    assert picture < commands < TEXT.index("make test") < 1500


@pytest.mark.embedded
def test_its_python_lines_run(tmp_path):
    code = re.search(r"## In Python\n\n```python\n(.*?)```", TEXT, re.S)
    assert code is not None
    done = subprocess.run([sys.executable, "-c", code[1]], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "ranktuner_scale" in done.stdout
    assert "<html" in (tmp_path / "pens.html").read_text("utf-8")


@pytest.mark.embedded
def test_its_fine_tuning_lines_run(tmp_path):
    code = re.search(r"```python\n(import losscore\nfrom losscore.finetuning import FineTune\n.*?)```", TEXT, re.S)
    assert code is not None
    done = subprocess.run([sys.executable, "-c", code[1]], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    nll = [float(line.split()[1]) for line in done.stdout.splitlines()]
    assert len(nll) == 6
    assert nll[-1] < nll[0]
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()


def test_its_lines_on_objectives_run():
    code = re.search(r"```python\n(from losscore import objectives\n.*?)```", TEXT, re.S)
    assert code is not None
    logits = torch.randn(2, 5, 30, requires_grad=True)
    names = {
        "logits": logits,
        "labels": torch.randint(0, 30, (2, 5)),
        "digit_ids": range(10),
        "places": torch.zeros(2, 5),
        "num_items": 8,
    }
    exec(code[1], names)
    names["loss"].backward()
    assert logits.grad.isfinite().all()
    assert names["mine"].title == "My formula"
