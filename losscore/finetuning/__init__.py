"""Fine-tune a copy of a model for seconds and watch its distributions change.

    for snapshot in losscore.finetune(model, "8 pens cost 8 * 12.5 = 100.0", objective="deft"):
        print(snapshot.step, snapshot.nll, snapshot.sheet().summary.line())

The shared model is never changed: LoRA trains a small adapter over its frozen weights, full fine-tuning a copy. Nothing
is drawn at random but the adapter's start and the order of the batches, both from the seed; dropout is off. The loss is
the mean over the responses' true number of tokens in the whole step, however it is cut into parts.
"""

from losscore.finetuning.probes import ProbeReading, shipped_probes
from losscore.finetuning.record import CURVES, Record, race_table
from losscore.finetuning.run import FineTune, finetune
from losscore.finetuning.settings import LEARNING_RATES, METHODS, Settings
from losscore.finetuning.snapshot import Snapshot

__all__ = [
    "CURVES",
    "LEARNING_RATES",
    "METHODS",
    "FineTune",
    "ProbeReading",
    "Record",
    "Settings",
    "Snapshot",
    "finetune",
    "race_table",
    "shipped_probes",
]
