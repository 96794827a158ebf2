"""transformers at work without its bars and warnings on the terminal."""

import io
import logging
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import TextIO

from losscore.models.progress import Progress

_BAR = re.compile(r"(\d{1,3})%\|")
# standard error, log handlers and warning filters belong to the process: two loads must not swap them at once
_ONE_AT_A_TIME = threading.RLock()


class BarTap(io.TextIOBase):
    """Stands in for standard error: swallows progress bars, hands on their fractions and everything else."""

    def __init__(self, behind: TextIO, message: str, progress: Progress) -> None:
        self._behind = behind
        self._message = message
        self._progress = progress
        self._last = -1
        self._line_open = False

    def write(self, text: str) -> int:
        bars = _BAR.findall(text)
        if bars:
            percent = min(int(bars[-1]), 100)
            if percent > self._last:  # a second bar starts again from 0
                self._last = percent
                self._progress(self._message, percent / 100)
        elif self._line_open or text.strip("\r\n\x1b[A "):
            self._line_open = not text.endswith("\n")
            self._behind.write(text)
        return len(text)

    def flush(self) -> None:
        self._behind.flush()


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.sentences: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.add(record.getMessage())

    def add(self, text: str) -> None:
        lines = text.strip().splitlines()
        if lines and "LOAD REPORT" not in lines[0] and lines[0] not in self.sentences:
            self.sentences.append(lines[0])


@contextmanager
def silence(message: str, progress: Progress) -> Iterator[list[str]]:
    """Keep transformers quiet inside the block.

    Yields the list that the library's warnings are gathered in, one line each; its progress bars become calls of
    `progress(message, fraction)`. Blocks of several threads run one after another.
    """
    import transformers  # its logger sets itself up on import, and would do so over ours

    with _ONE_AT_A_TIME, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        collector = _Collector()
        loggers = [logging.getLogger(name) for name in (transformers.__name__, "huggingface_hub", "gguf")]
        before = [(logger, logger.handlers, logger.propagate) for logger in loggers]
        for logger in loggers:
            logger.handlers, logger.propagate = [collector], False
        try:
            with redirect_stderr(BarTap(sys.stderr, message, progress)):
                yield collector.sentences
        finally:
            for logger, handlers, propagate in before:
                logger.handlers, logger.propagate = handlers, propagate
            for warning in caught:
                if issubclass(warning.category, UserWarning):
                    collector.add(str(warning.message))
