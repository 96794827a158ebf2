"""What the checks found: one line each as they run, and all of it as JSON."""

from __future__ import annotations

import json
import math
import time
from typing import Any


class Report:
    """Collects checks, which may fail, and figures, which are only told."""

    def __init__(self) -> None:
        self.checks: list[dict[str, Any]] = []
        self.figures: list[dict[str, Any]] = []
        self._began = time.perf_counter()

    @property
    def failed(self) -> int:
        """How many checks failed."""
        return sum(not check["ok"] for check in self.checks)

    @property
    def seconds(self) -> float:
        """Since the report was opened."""
        return time.perf_counter() - self._began

    def check(self, name: str, error: float, allowed: float) -> None:
        """`error` must be a number of at most `allowed`."""
        ok = math.isfinite(error) and error <= allowed
        self.checks.append(
            {"name": name, "error": error if math.isfinite(error) else None, "allowed": allowed, "ok": ok}
        )
        print(f"{'ok  ' if ok else 'FAIL'} {name}: {error:.2g}, allowed {allowed:.2g}", flush=True)

    def figure(self, name: str, **values: float | None) -> None:
        """Something measured that nothing is demanded of; None where it could not be."""
        self.figures.append({"name": name, **values})
        told = ", ".join(f"{key} {'–' if value is None else format(value, '.4g')}" for key, value in values.items())
        print(f"     {name}: {told}", flush=True)

    def to_json(self, **about: Any) -> str:
        """Everything, with what it was measured on."""
        found = {**about, "failed": self.failed, "seconds": self.seconds}
        return json.dumps({**found, "checks": self.checks, "figures": self.figures}, indent=1, allow_nan=False)
