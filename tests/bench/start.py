"""How long it takes to start: processes of their own, beside the same by hand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from statistics import median

import losscore
from losscore.models.embedded import converted_folder
from tests.bench.clock import seconds
from tests.bench.table import Row

TEXT = "8 pens cost 8 * 12.5 = 100.0"
BY_HAND = """
import sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder, text = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
network = AutoModelForCausalLM.from_pretrained(folder)
ids = tokenizer(text, return_tensors="pt").input_ids
with torch.no_grad():
    log_p = network(ids).logits[0, :-1].log_softmax(-1)
print(log_p.gather(-1, ids[0, 1:, None]))
"""


def rows(repeats: int) -> Iterator[Row]:
    """The help, a score of a short text, and the model's loading."""
    own = [sys.executable, "-m", "losscore"]
    shown = [_seconds([*own, "--help"]) for _ in range(repeats + 1)][1:]
    yield Row("`losscore --help`", "", (median(shown),), 0.3, unit="s")
    folder = str(converted_folder())
    by_hand, score = [sys.executable, "-c", BY_HAND, folder, TEXT], [*own, "score", TEXT]
    taken = [(_seconds(by_hand), _seconds(score)) for _ in range(repeats + 1)][1:]
    ratio = median(ours / theirs for theirs, ours in taken)
    note = "({1:.1f} s and {0:.1f} s)".format(*map(median, zip(*taken, strict=True)))
    what = "`losscore score TEXT` / import torch and transformers, load, one forward pass, print"
    yield Row(what, "17 tokens", (ratio,), 1.3, note=note)
    load = [seconds(lambda: losscore.load(device="cpu")) for _ in range(repeats + 1)][1:]
    yield Row("`losscore.load()` in a warm process", "135 M parameters", (median(load),), 0.5, unit="s")


def _seconds(command: list[str]) -> float:
    return seconds(lambda: subprocess.run(command, check=True, capture_output=True))
