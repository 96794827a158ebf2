"""Every column of a sheet once more: slow, in plain Python floats, from the equations. Shares no code with losscore."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import torch

# Two ways of one float32 product (all rows at once, or chunk by chunk; one pass, or a key-value cache) differ by a few
# units in the last place of the largest logit. That is the only difference there may be: the rest is float64 here and
# there. Logits nearer than this to the target's may change places with it.
CLOSE = 5e-5


def sheet_by_hand(
    network: Any, tokenizer: Any, ids: list[int], ends: list[int], text: str, prompt: int
) -> list[dict[str, Any]]:
    """One dictionary per token of `ids`; ends: where each ends in `text`; prompt: characters that are no target."""
    with torch.no_grad():
        logits = network(torch.tensor([ids])).logits[0].double().tolist()
    digit_ids = [tokenizer.get_vocab()[digit] for digit in "0123456789"]
    rows = []
    for t, y in enumerate(ids):
        row: dict[str, Any] = {"position": t, "id": y, "is_target": t > 0 and ends[t] > prompt}
        rows.append(row)
        if y in digit_ids:
            row["digit"] = digit_ids.index(y)
            row["place"] = place_of(text, ends[t] - 1)
        if t == 0:
            continue
        z = logits[t - 1]
        row |= token_columns(z, y)
        if "digit" in row:
            row |= digit_columns([z[i] for i in digit_ids], row["digit"], row["place"])
    return rows


def token_columns(z: list[float], y: int) -> dict[str, Any]:
    top = max(z)
    total = math.fsum(math.exp(v - top) for v in z)
    log_p = z[y] - top - math.log(total)
    probabilities = [math.exp(v - top) / total for v in z]
    entropy = -math.fsum(q * math.log(q) for q in probabilities if q > 0)
    expected = math.fsum(i * q for i, q in enumerate(sorted(probabilities, reverse=True), start=1))
    concentration = math.fsum(q * q for q in probabilities)
    p = math.exp(log_p)
    root = math.sqrt(max(0.0, 1 - p))
    cayley = (1 - root) / (1 + root)
    return {
        "log_p": log_p,
        "p": p,
        "entropy": entropy,
        "rank": sum(1 for v in z if v >= z[y]),
        "least_rank": sum(1 for v in z if v > z[y] + CLOSE) + 1,
        "most_rank": sum(1 for v in z if v >= z[y] - CLOSE),
        "expected_rank": expected,
        "concentration": concentration,
        "deft_alpha": concentration,
        "deft_gate": p**concentration,
        "cayley_alpha": cayley,
        "cayley_gate": p**cayley,
    }


def rank_columns(rank: float, row: dict[str, Any]) -> dict[str, float]:
    """What RankTuner makes of a rank."""
    expected, bits = row["expected_rank"], row["entropy"] / math.log(2)
    indicator = 2 ** (1 / math.log2(rank + 1) - 1 / math.log2(expected + 1))
    bound = 2**bits / 4 + 1
    power = 1 / math.log2(max(rank, bound) + 1) ** 2
    return {
        "ranktuner_indicator": indicator,
        "ranktuner_scale": 1 / indicator,
        "ranktuner_scale_from_bounds": (row["p"] * bound) ** -power,
    }


def digit_columns(z: list[float], digit: int, place: int) -> dict[str, float]:
    total = math.fsum(math.exp(v - max(z)) for v in z)
    shares = [math.exp(v - max(z)) / total for v in z]
    costs = []
    for d, v in enumerate(z):
        # -log sigmoid(v) = log(1 + exp(-v)); for a wrong digit the sign of v turns round
        v = -v if d != digit else v
        costs.append(max(-v, 0.0) + math.log1p(math.exp(-abs(v))))
    criterion = sum(share * cost for share, cost in zip(shares, costs, strict=True))
    weight = 2.0 * (place + 1) if place >= 0 else 1.02 ** (place - 1)
    return {
        "place_weight": weight,
        "p_given_digit": shares[digit],
        "digit_entropy": -math.fsum(share * math.log(share) for share in shares),
        "del_criterion": criterion,
        "del_penalty": 0.01 / 10 * criterion * weight,
    }


def place_of(text: str, index: int) -> int:
    """The place of the digit at `index`: by how much the number changes when this digit does, in powers of ten."""
    left, right = index, index + 1
    while left > 0 and text[left - 1] in "0123456789.":
        left -= 1
    while right < len(text) and text[right] in "0123456789.":
        right += 1
    number = text[left:right].rstrip(".")
    at = index - left
    if number.count(".") > 1:
        start = number.rfind(".", 0, at) + 1
        stop = number.find(".", at)
        number, at = number[start : stop if stop >= 0 else None], at - start
    digit = int(number[at])
    other = number[:at] + str((digit + 1) % 10) + number[at + 1 :]
    step = abs(Decimal(other) - Decimal(number)) / (1 if digit < 9 else 9)
    return step.adjusted()
