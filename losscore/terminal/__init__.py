"""What the command line shows: tables, messages, progress. Nothing of a text can command the terminal."""

from losscore.terminal.noise import noise_parts
from losscore.terminal.progress import progress_bar, step_progress
from losscore.terminal.screen import complain, console_for, plain_table, print_parts, say, styled
from losscore.terminal.sheet import report
from losscore.terminal.tuning import tune_parts

__all__ = [
    "complain",
    "console_for",
    "noise_parts",
    "plain_table",
    "print_parts",
    "progress_bar",
    "report",
    "say",
    "step_progress",
    "styled",
    "tune_parts",
]
