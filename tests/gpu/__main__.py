"""One line a check, exit code 1 where one failed. `LOSSCORE_GPU=required` refuses to run without CUDA."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import torch

from tests.bench.step import LENGTHS, LONG, machine
from tests.gpu.cost import tell_memory, tell_seconds
from tests.gpu.report import Report
from tests.gpu.subject import fingerprint, on, subject
from tests.gpu.values import check_curve, check_objectives, check_scores


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("json", nargs="?", help="where the figures go as JSON; without it, into $OUT where that is set")
    parser.add_argument("--model", help="as losscore.load takes it; the embedded model without one")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lengths", type=int, nargs="*", default=[*LENGTHS, LONG])
    parser.add_argument("--repeats", type=int, default=7)
    options: Any = parser.parse_args()
    cuda = torch.cuda.is_available()
    if not cuda:
        if os.environ.get("LOSSCORE_GPU") == "required":
            sys.exit("LOSSCORE_GPU=required, and torch sees no CUDA device.")
        print(
            "*** NO GPU: a dry run on the CPU. It shows that the checks run, and nothing about a GPU. ***", flush=True
        )
    report = Report()
    shared = subject(options.model)
    device = on(shared, torch.device("cuda" if cuda else "cpu"))
    before = fingerprint(device)
    print(f"     {machine(device)}", flush=True)
    check_scores(report, shared, device)
    check_objectives(report, device.device)
    check_curve(report, shared, device, options.steps)
    tell_seconds(report, device, options.steps)
    tell_memory(report, device, options.lengths, options.repeats)
    report.check("the shared model's weights, changed", float(fingerprint(device) != before), 0)
    print(f"{len(report.checks) - report.failed} of {len(report.checks)} checks passed in {report.seconds:.0f} s")
    out = options.json or (Path(os.environ["OUT"]) / "gpu-check.json" if os.environ.get("OUT") else None)
    if out:
        Path(out).write_text(report.to_json(machine=machine(device), dry_run=not cuda), "utf-8")
    if not cuda:
        print("*** This was a dry run on the CPU. ***")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
