"""The walk: text -> encode -> run -> measure -> weigh -> sheet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from losscore.assembly import assemble
from losscore.errors import Cancelled, ModelError, TextError
from losscore.memory import Memory
from losscore.models.placement import is_memory_full, told_when_lost
from losscore.objectives import Objective, find
from losscore.running import outputs, plan_reading
from losscore.sheet import Sheet
from losscore.stats import Statistics, stream
from losscore.text import Encoding, Window
from losscore.text.encoding import mend_surrogates
from losscore.weighing import weigh

if TYPE_CHECKING:
    from losscore.models import Model


def score(
    model: Model,
    text: str,
    prompt: str | None = None,
    *,
    bos: str = "auto",
    parse_special: bool = False,
    window: int | None = None,
    stride: int | None = None,
    limit: int | None = None,
    objectives: Sequence[Objective | str] = (),
    chunk: int | None = None,
    progress: Callable[[float], None] | None = None,
    stop: Callable[[], bool] | None = None,
    memory: Memory | None = None,
) -> Sheet:
    """Score every token of `text` with `model`: statistics, RankTuner, DEFT, Cayley and DEL.

    prompt: read before `text`, tokenised together with it; its tokens get values but are no targets.
    bos: "auto" follows the tokenizer's own setting, "always" or "never". Without a BOS the first row is blank.
    parse_special: read typed control tokens such as `<|endoftext|>` as control tokens instead of as text.
    window, stride: how a text longer than the model's context is cut (default: the context, half of it).
    limit: score only that many tokens from the start; the sheet says how many are left out.
    objectives: further objectives, or their names; each adds a column `weight_<label>`, see `losscore.weighing.weigh`.
    chunk: rows of logits held at one time; never changes a value beyond rounding.
    progress(share): called as the work goes on. stop(): return True to end with Cancelled.
    memory: what the text scored before left behind; where both begin alike, that part is not computed again.
    Raises LosscoreError with one plain sentence.
    """
    encoding = model.encoder.encode(text, prompt, bos=bos, parse_special=parse_special)
    if limit is not None and limit < 1:
        raise TextError("The number of tokens to score must be at least 1.")
    left_out = max(0, len(encoding) - max(limit, encoding.prefix)) if limit else 0
    encoding = encoding.first(len(encoding) - left_out)
    plan = plan_reading(model, encoding, window, stride)
    try:
        with told_when_lost():
            statistics = _measure(model, encoding, plan.windows, chunk, progress, stop, memory)
    except (RuntimeError, MemoryError) as error:
        if not is_memory_full(error):
            raise
        raise ModelError(
            f"{len(encoding)} tokens do not fit into the memory of {model.device}: score a shorter text, "
            "or give a smaller window."
        ) from error
    sheet = assemble(
        model,
        encoding,
        statistics,
        {
            "bos_policy": bos,
            "special_tokens_parsed": parse_special,
            "prompt_characters": min(len(encoding.text), len(mend_surrogates(prompt or "")[0])),
            "tokens_left_out": left_out,
            **plan.provenance,
        },
    )
    return _with_weights(sheet, [find(one) if isinstance(one, str) else one for one in objectives], model)


def _with_weights(sheet: Sheet, objectives: Sequence[Objective], model: Model) -> Sheet:
    """The sheet with one more column for each of `objectives`, and their settings in its provenance."""
    if not objectives:
        return sheet
    with told_when_lost():
        weights = {f"weight_{one.label}": weigh(sheet, one, model) for one in objectives}
    settings = dict(sheet.provenance["objectives"]) | {f"weight_{one.label}": one.values for one in objectives}
    return replace(sheet, columns={**sheet.columns, **weights}, provenance={**sheet.provenance, "objectives": settings})


def _measure(
    model: Model,
    encoding: Encoding,
    windows: Sequence[Window],
    chunk: int | None,
    progress: Callable[[float], None] | None,
    stop: Callable[[], bool] | None,
    memory: Memory | None,
) -> Statistics:
    """Statistics of every row that has a prediction."""
    front = max(1, encoding.prefix)
    known, past = (None, None) if memory is None or len(windows) != 1 else memory.recall(model, encoding.ids, front)
    done_before = len(known) if known else 0
    targets = torch.tensor(encoding.ids[front + done_before :], dtype=torch.long)

    def tick(done: int) -> None:
        if stop and stop():
            raise Cancelled("Scoring was stopped.")
        if progress:
            progress(done / len(targets))

    found = stream(
        outputs(model, encoding.ids, encoding.prefix, windows, skip=done_before, past=past),
        model.head,
        targets,
        model.encoder.vocabulary.digit_ids or (),
        vocabulary=model.vocabulary,
        chunk=chunk,
        tick=tick,
    )
    statistics = Statistics.join([known, found]) if known else found
    if memory is not None and past is not None:
        memory.keep(model, encoding.ids, statistics)
    return statistics
