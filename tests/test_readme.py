"""The README says what the code does."""

import re
import subprocess
import sys

import pytest

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
