"""A local model opens no socket: asked of the interpreter itself, with the hub allowed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.models import tiny_gguf
from tests.models.tiny import CONFIGS, put_in_cache, save

_SCRIPT = """
import json, sys
opened = []
sys.addaudithook(lambda event, arguments: event.startswith("socket.") and opened.append(event))
import losscore
from losscore.errors import LosscoreError
from losscore.models import available
scored, refused = [], []
for name in json.loads(sys.argv[1]):
    try:
        model = losscore.load(name, device="cpu")
    except LosscoreError as error:
        refused.append(str(error))
        continue
    sheet = losscore.score(model, "the river 12.5 \\U0001f600", objectives=["dft", "eaft"])
    for format_ in ("json", "csv", "parquet", "html"):
        sheet.export(format_)
    scored.append(model.name)
available()
print(json.dumps([scored, refused, opened]))
"""


@pytest.mark.embedded
def test_no_socket_is_opened_for_what_is_on_this_machine(tmp_path: Path) -> None:
    folder = save(CONFIGS["llama"](), tmp_path / "folder")
    tiny_gguf.write(tmp_path / "file.gguf")
    put_in_cache(tmp_path / "cache", "someone/tiny", CONFIGS["gpt2"]())
    names = [None, str(folder), str(tmp_path / "file.gguf"), "someone/tiny", "someone/absent", str(tmp_path / "none")]
    allowed = {name: value for name, value in os.environ.items() if not name.endswith("_OFFLINE")}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, json.dumps(names)],
        env=allowed | {"HF_HUB_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    scored, refused, opened = json.loads(done.stdout.splitlines()[-1])
    assert scored == ["smollm2-135m-instruct", "folder", "file.gguf", "someone/tiny"]
    assert len(refused) == 2
    assert "someone/absent" in refused[0]
    assert opened == []
