"""The noise check: random words put into worked answers, and how much of each objective's emphasis falls on them.

An objective that weighs tokens should keep its emphasis away from noise, so low figures are good. Low is easy for an
objective that trusts the model and so keeps away from every surprise (linear, DFT, DEFT): the check says where the
emphasis doesn't go, not where it should. And a weight is only relative to cross-entropy's push, which an improbable
token gets in full: weighing all tokens alike (NLL) still moves the noise most.

    from losscore import noise, objectives
    report = noise.noise_check(model, noise.worked_answers(), [objectives.nll, objectives.deft])
    report.to_frame()

The diagnosis is that of RankTuner's authors (arXiv 2602.01745); `PAPER` holds what they report.
"""

from losscore.noise.answers import worked_answers
from losscore.noise.check import measure_noise, noise_check
from losscore.noise.injection import Noisy, inject, noise_tokens
from losscore.noise.report import PAPER, PAPER_SOURCE, NoiseReport, NoiseRow

__all__ = [
    "PAPER",
    "PAPER_SOURCE",
    "NoiseReport",
    "NoiseRow",
    "Noisy",
    "inject",
    "measure_noise",
    "noise_check",
    "noise_tokens",
    "worked_answers",
]
