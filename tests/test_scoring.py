from __future__ import annotations

import json
import math
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

import losscore
from losscore.columns import COLUMNS
from losscore.errors import Cancelled, LosscoreError, ModelError, TextError
from losscore.sheet import Sheet
from tests.tiny import Oracle, gpt2_like, llama2_like, mini_model, smol_like
from tests.tiny.by_hand import rank_columns, sheet_by_hand

TEXT = "Eight pens cost 8 * 12.5 = 100.0 euros, v3.11.2 in 2024. 😀 한국어 e\u0301 7"
VALUES = [name for name, column in COLUMNS.items() if column.kind != "text"][4:]
# One token a character, and every id once.
DISTINCT = "AzBycxdweVFuGTHSIRJqkpKoLn"


def blank(sheet: Sheet, row: int) -> bool:
    """Nothing is said of what the model thought at `row`."""
    said = [name for name in VALUES if name not in ("is_target", "digit", "place", "start", "end")]
    return all(np.isnan(sheet.columns[name][row]) for name in said)


def assert_by_hand(model: Any, sheet: Sheet, prompt: int = 0, tolerance: float = 1e-5) -> None:
    ids = sheet.columns["id"].tolist()
    rows = sheet_by_hand(model.network, model.tokenizer, ids, sheet.columns["end"].tolist(), sheet.text, prompt)
    assert len(rows) == len(sheet)
    for t, expected in enumerate(rows):
        if "log_p" in expected:
            rank = sheet.columns["rank"][t]
            assert expected.pop("least_rank") <= rank <= expected.pop("most_rank"), t
            expected |= rank_columns(rank, expected)
            expected["rank"] = rank
        for name in VALUES:
            if name in ("start", "end"):
                continue
            found = float(sheet.columns[name][t])
            if name not in expected:
                assert math.isnan(found), (t, name)
            else:
                assert found == pytest.approx(float(expected[name]), rel=tolerance, abs=1e-12), (t, name)


# Every column ----------------------------------------------------------------------------------------------------


def test_every_column_is_what_the_equations_say(mini: Any) -> None:
    sheet = losscore.score(mini, TEXT)
    assert_by_hand(mini, sheet)


def test_every_column_with_a_prompt(mini: Any) -> None:
    sheet = losscore.score(mini, "12.5 = 100.0 euros", "Eight pens cost 8 * ")
    assert_by_hand(mini, sheet, prompt=len("Eight pens cost 8 * "))
    assert sheet.summary.scored == sum(sheet.columns["is_target"]) < len(sheet) - 1


@pytest.mark.parametrize("tokenizer", [gpt2_like, llama2_like])
def test_every_column_with_other_tokenizers(tokenizer: Any) -> None:
    model = mini_model(tokenizer(), context=128, seed=1)
    assert_by_hand(model, losscore.score(model, TEXT))


@pytest.mark.embedded
@pytest.mark.parametrize(
    "text",
    [
        "8 pens cost 8 * 12.5 = 100.0",
        "It was overheard: 3.14159 is not 22/7, and 192.168.0.1 no number. 😀👩‍👧 한국어 문장입니다.",
        "  \n\tdef f(x):\n    return x ** 2  # 0.05",
    ],
)
def test_every_column_of_the_embedded_model(embedded: Any, text: str) -> None:
    assert_by_hand(embedded, losscore.score(embedded, text))


@pytest.mark.embedded
def test_every_column_of_the_embedded_model_with_prompt_and_bos(embedded: Any) -> None:
    prompt = "Question: what is 12 times 12?\nAnswer: "
    sheet = losscore.score(embedded, "12 * 12 = 144.", prompt, bos="always")
    assert_by_hand(embedded, sheet, prompt=len(prompt))
    assert sheet.columns["id"].tolist().count(embedded.tokenizer.bos_token_id) == 1


def test_the_columns_are_those_of_the_contract(mini: Any) -> None:
    assert " ".join(losscore.score(mini, "the river").columns) == (
        "position id token bytes start end is_target log_p p entropy rank expected_rank concentration "
        "ranktuner_indicator ranktuner_scale ranktuner_scale_from_bounds deft_alpha deft_gate cayley_alpha cayley_gate "
        "digit place place_weight p_given_digit digit_entropy del_criterion del_penalty"
    )


def test_the_most_probable_tokens_stand_at_the_row_they_predict(mini: Any) -> None:
    sheet = losscore.score(mini, "the river 12")
    logits = mini.network(torch.tensor([sheet.columns["id"].tolist()])).logits[0].detach().double()
    assert sheet.top_tokens[0] == ()
    assert sheet.top_ids is not None
    assert sheet.top_log_p is not None
    for row in range(1, len(sheet)):
        log_p, ids = torch.log_softmax(logits[row - 1], -1).topk(20)
        assert sheet.top_ids[row].tolist() == ids.tolist()
        assert sheet.top_log_p[row].tolist() == pytest.approx(log_p.tolist(), rel=1e-4)
        assert len(sheet.top_tokens[row]) == 20
        if sheet.columns["rank"][row] <= 20:
            place = int(sheet.columns["rank"][row]) - 1
            assert sheet.top_ids[row][place] == sheet.columns["id"][row]
    for row, shares in sheet.p_digits.items():
        assert sum(shares) == pytest.approx(1, rel=1e-12)
        assert shares[int(sheet.columns["digit"][row])] == pytest.approx(sheet.columns["p_given_digit"][row])


def test_outputs_beyond_the_tokenizer_count_and_are_named_by_their_id() -> None:
    model = mini_model(padding=50)
    sheet = losscore.score(model, "the river 12")
    assert sheet.provenance["vocabulary"] == len(model.tokenizer) + 50
    assert_by_hand(model, sheet)
    assert sheet.top_ids is not None
    named = {
        name: int(i)
        for names, ids in zip(sheet.top_tokens[1:], sheet.top_ids[1:], strict=True)
        for name, i in zip(names, ids, strict=True)
    }
    padded = {name: i for name, i in named.items() if i >= len(model.tokenizer)}
    assert padded
    assert all(name == f"⟨id {i}⟩" for name, i in padded.items())


# One position off ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("window", "stride"), [(None, None), (8, 4), (8, 7), (8, 1), (2, 1)])
def test_a_model_that_knows_the_next_token_is_right_at_every_row(window: int | None, stride: int | None) -> None:
    sheet = losscore.score(Oracle(DISTINCT), DISTINCT, window=window, stride=stride)
    assert len(sheet) == 26
    assert blank(sheet, 0)
    assert sheet.columns["log_p"][1:] == pytest.approx(np.zeros(25), abs=1e-12)
    assert sheet.columns["rank"][1:].tolist() == [1] * 25
    assert sheet.columns["entropy"][1:] == pytest.approx(np.zeros(25), abs=1e-12)
    assert sheet.summary.scored == 25
    assert sheet.summary.mean_nll == pytest.approx(0, abs=1e-12)


def test_a_prompt_shifts_nothing() -> None:
    sheet = losscore.score(Oracle(DISTINCT), DISTINCT[10:], DISTINCT[:10])
    assert sheet.columns["rank"][1:].tolist() == [1] * 25
    assert sheet.columns["is_target"].tolist() == [False] * 10 + [True] * 16
    assert sheet.summary.scored == 16
    assert sheet.provenance["prompt_characters"] == 10


@pytest.mark.parametrize(("window", "stride"), [(None, None), (9, 4), (3, 1)])
def test_with_a_bos_the_first_token_is_scored_too_and_every_window_begins_with_it(
    window: int | None, stride: int | None
) -> None:
    oracle = Oracle(DISTINCT, tokenizer=smol_like(bos=True))
    sheet = losscore.score(oracle, DISTINCT, window=window, stride=stride)
    assert sheet.columns["token"][:2] == ["<|start|>", "A"]
    assert blank(sheet, 0)
    assert sheet.columns["rank"][1:].tolist() == [1] * 26
    assert sheet.summary.scored == 26
    assert sheet.special[:2] == (True, False)
    bos = oracle.tokenizer.bos_token_id
    assert all(ids[0] == bos and bos not in ids[1:] for ids in oracle.read)
    assert sheet.provenance["bos"] == "<|start|>, the tokenizer's own setting"
    assert sheet.provenance["window"] == (window or oracle.context)


# Windows ---------------------------------------------------------------------------------------------------------


def test_windows_are_runs_by_hand(mini: Any) -> None:
    text = "cost 12.5 euros, " * 6 + "in 2024"
    sheet = losscore.score(mini, text, window=16, stride=8)
    ids = sheet.columns["id"].tolist()
    assert sheet.provenance["windows"] == math.ceil((len(ids) - 16) / 8) + 1 > 4
    first = 0
    while first < len(ids):
        stop = min(first + (8 if first else 16), len(ids))
        start = max(0, stop - 16)
        with torch.no_grad():
            logits = mini.network(torch.tensor([ids[start:stop]])).logits[0].double()
        for t in range(max(first, 1), stop):
            expected = float(torch.log_softmax(logits[t - start - 1], -1)[ids[t]])
            assert sheet.columns["log_p"][t] == pytest.approx(expected, rel=1e-4), t
        first = stop


def test_a_seam_changes_no_place(mini: Any) -> None:
    text = "is 1234567890123456.25 and 12"
    whole = losscore.score(mini, text)
    for window in (3, 5, 8):
        cut = losscore.score(mini, text, window=window)
        for name in ("digit", "place", "place_weight", "start", "end"):
            assert np.array_equal(cut.columns[name], whole.columns[name], equal_nan=True), name


def test_a_text_of_exactly_the_context_is_one_window() -> None:
    oracle = Oracle(DISTINCT, context=26)
    assert losscore.score(oracle, DISTINCT).provenance["windows"] == 1
    assert losscore.score(Oracle(DISTINCT, context=25), DISTINCT).provenance["windows"] == 2


def test_a_window_beyond_the_context_is_cut_to_it() -> None:
    assert losscore.score(Oracle(DISTINCT, context=10), DISTINCT, window=99).provenance["window"] == 10


@pytest.mark.parametrize("settings", [{"window": 1}, {"window": 0}, {"stride": 0}, {"window": 8, "stride": 8}])
def test_impossible_windows_are_refused_in_a_sentence(settings: dict[str, int]) -> None:
    with pytest.raises(TextError, match="must"):
        losscore.score(Oracle(DISTINCT), DISTINCT, **settings)


@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_the_chunk_changes_no_value(mini: Any, chunk: int) -> None:
    whole, cut = losscore.score(mini, TEXT), losscore.score(mini, TEXT, chunk=chunk)
    for name in VALUES:
        assert np.allclose(
            np.asarray(whole.columns[name], float), np.asarray(cut.columns[name], float), rtol=1e-4, equal_nan=True
        ), name


def test_no_more_logits_than_a_chunk_are_held() -> None:
    oracle = Oracle(DISTINCT)
    losscore.score(oracle, DISTINCT, chunk=4)
    assert max(oracle.asked) == 4
    assert sum(oracle.asked) == 25


# Little or nothing to score --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "rows", "scored"), [("", 0, 0), ("a", 1, 0), ("\n", 1, 0), (" \t", 2, 1)])
def test_short_texts_have_blanks_and_no_nan(mini: Any, text: str, rows: int, scored: int) -> None:
    sheet = losscore.score(mini, text)
    assert (len(sheet), sheet.summary.scored) == (rows, scored)
    assert rows == 0 or blank(sheet, 0)
    assert (sheet.summary.mean_nll is None) == (scored == 0)
    assert (sheet.summary.perplexity is None) == (scored == 0)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    table = json.loads(sheet.to_json(), parse_constant=refuse)
    assert len(table["tokens"]) == rows
    for format_ in ("csv", "parquet", "html"):
        assert sheet.export(format_)


def test_empty_text_with_a_bos_is_the_bos_alone(mini: Any) -> None:
    sheet = losscore.score(mini, "", bos="always")
    assert sheet.columns["token"] == ["<|endoftext|>"]
    assert sheet.summary.scored == 0


def test_one_token_with_a_bos_is_scored(mini: Any) -> None:
    sheet = losscore.score(mini, "a", bos="always")
    assert sheet.summary.scored == 1
    assert_by_hand(mini, sheet)


def test_a_prompt_alone_scores_nothing_but_shows_its_values(mini: Any) -> None:
    sheet = losscore.score(mini, "", "the river")
    assert sheet.summary.scored == 0
    assert np.isfinite(sheet.columns["log_p"][1:]).all()


# Limits, stops, refusals -----------------------------------------------------------------------------------------


def test_a_limit_scores_the_first_tokens_and_says_what_is_left_out(mini: Any) -> None:
    whole, cut = losscore.score(mini, TEXT), losscore.score(mini, TEXT, limit=9)
    assert len(cut) == 9
    assert cut.provenance["tokens_left_out"] == len(whole) - 9
    assert cut.columns["log_p"][1:] == pytest.approx(whole.columns["log_p"][1:9], rel=1e-4)
    assert TEXT.startswith(cut.text)
    assert losscore.score(mini, TEXT, limit=999).provenance["tokens_left_out"] == 0
    assert losscore.score(mini, "euros", "the " * 20, limit=5).provenance["prompt_characters"] == len(
        losscore.score(mini, "euros", "the " * 20, limit=5).text
    )


@pytest.mark.parametrize("limit", [0, -3])
def test_a_limit_below_one_is_refused(mini: Any, limit: int) -> None:
    with pytest.raises(TextError, match="at least 1"):
        losscore.score(mini, TEXT, limit=limit)


def test_a_limit_of_one_with_a_bos(mini: Any) -> None:
    assert len(losscore.score(mini, TEXT, limit=1, bos="always")) == 1


def test_progress_rises_to_one(mini: Any) -> None:
    shares: list[float] = []
    losscore.score(mini, TEXT, chunk=5, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert len(shares) > 5


def test_stopping_ends_the_work_at_once() -> None:
    oracle = Oracle(DISTINCT)
    with pytest.raises(Cancelled):
        losscore.score(oracle, DISTINCT, chunk=5, stop=lambda: len(oracle.asked) >= 2)
    assert len(oracle.asked) == 2


def test_a_token_the_model_has_no_output_for_is_refused_before_anything_runs() -> None:
    oracle = Oracle(DISTINCT)
    oracle.vocabulary = oracle.encoder.encode("n").ids[0]
    with pytest.raises(ModelError, match="tokenizer made for this model"):
        losscore.score(oracle, DISTINCT)
    assert oracle.read == []


def test_out_of_memory_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = Oracle(DISTINCT)

    def full(rows: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(oracle, "head", full)
    with pytest.raises(ModelError, match="26 tokens do not fit"):
        losscore.score(oracle, DISTINCT)


def test_an_unknown_bos_policy_is_refused(mini: Any) -> None:
    with pytest.raises(LosscoreError, match="BOS policy"):
        losscore.score(mini, "a", bos="maybe")


def test_broken_logits_leave_blank_rows_and_the_others_alone() -> None:
    oracle = Oracle(DISTINCT)
    oracle._spike[oracle.encoder.encode(DISTINCT[4]).ids[0]] = math.nan
    sheet = losscore.score(oracle, DISTINCT)
    assert blank(sheet, 5)
    assert np.isfinite(np.delete(sheet.columns["log_p"], [0, 5])).all()
    assert sheet.summary.scored == sheet.provenance["tokens_scored"] == 24
    assert sheet.summary.mean_nll == pytest.approx(0, abs=1e-12)
    json.dumps(sheet.rows(), allow_nan=False)


# How it was made -------------------------------------------------------------------------------------------------


def test_the_sheet_says_how_it_was_made(mini: Any) -> None:
    sheet = losscore.score(replace(mini, notes=("said so",)), TEXT, "the ", window=32, stride=16)
    made = sheet.provenance
    assert (made["model"], made["revision"], made["dtype"], made["device"]) == ("mini", "seed 0", "float32", "cpu")
    assert made["vocabulary"] == len(mini.tokenizer)
    assert (made["window"], made["stride"]) == (32, 16)
    assert made["bos_policy"] == "auto"
    assert (made["tokens"], made["tokens_scored"]) == (len(sheet), sheet.summary.scored)
    assert made["tokens_scored"] < made["tokens"] - 1
    assert made["digit_set"] == 10
    assert made["digits_in_text"] == sum(character in "0123456789" for character in TEXT)
    assert made["objectives"]["del"] == {"alpha": 0.01}
    assert made["notes"] == ["said so"]
    assert made["versions"]["torch"] == torch.__version__
    json.dumps(made, allow_nan=False)


def test_typed_control_tokens_are_badged_only_when_parsed(mini: Any) -> None:
    text = "a <|endoftext|> b"
    assert not any(losscore.score(mini, text).special)
    parsed = losscore.score(mini, text, parse_special=True)
    assert sum(parsed.special) == 1
    row = parsed.special.index(True)
    assert parsed.columns["token"][row] == "<|endoftext|>"
    assert np.isfinite(parsed.columns["log_p"][row:]).all()
    assert parsed.summary.scored == len(parsed) - 1


def test_a_token_without_text_is_named() -> None:
    sheet = losscore.score(mini_model(llama2_like()), "410")
    assert sheet.columns["token"] == ["▁", "4", "1", "0"]
    assert sheet.columns["bytes"][0] == ""


def test_scoring_changes_nothing_of_the_model(mini: Any) -> None:
    before = [parameter.detach().clone() for parameter in mini.network.parameters()]
    losscore.score(mini, TEXT)
    assert all(torch.equal(one, other) for one, other in zip(before, mini.network.parameters(), strict=True))
    assert not any(parameter.grad is not None for parameter in mini.network.parameters())
    assert not mini.network.training


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), ModelError),
        (MemoryError(), ModelError),
        (RuntimeError("shapes cannot be multiplied"), RuntimeError),
    ],
)
def test_too_little_memory_is_one_sentence_and_other_faults_stay_themselves(error, expected) -> None:
    class Full(Oracle):
        def blocks(self, ids, *, first=0, piece=1024, past=None):
            raise error

    with pytest.raises(expected) as caught:
        losscore.score(Full("abc"), "abc")
    assert ("memory" in str(caught.value)) == (expected is ModelError)


def test_further_objectives_add_a_column_each_and_their_settings(mini: Any) -> None:
    from losscore import objectives
    from losscore.weighing import weigh

    plain = losscore.score(mini, "Pens cost 12.5")
    sheet = losscore.score(mini, "Pens cost 12.5", objectives=["dft", objectives.tsallis.with_parameters(a=0.25)])
    assert list(sheet.columns) == [*COLUMNS, "weight_dft", "weight_tsallis:a=0.25"]
    assert np.allclose(sheet.columns["weight_dft"], weigh(plain, objectives.dft), equal_nan=True)
    assert sheet.provenance["objectives"]["weight_tsallis:a=0.25"] == {"a": 0.25}
    tokens = json.loads(sheet.to_json(), parse_constant=pytest.fail)["tokens"]
    assert tokens[0]["weight_dft"] is None
    assert tokens[2]["weight_dft"] == pytest.approx(tokens[2]["p"])
    assert "weight_tsallis:a=0.25" in sheet.to_frame()
    with pytest.raises(LosscoreError, match="no objective 'dtf'"):
        losscore.score(mini, "abc", objectives=["dtf"])


def test_how_the_statistics_are_taken_is_what_the_sheet_says(mini, monkeypatch):
    module = import_module("losscore.stats.measure")  # the function hides it as an attribute
    taken: list[str] = []
    for name in ("by_sweep", "by_equations"):
        plain = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, name=name, plain=plain, **k: taken.append(name) or plain(*a, **k))
    wide, long = mini_model(padding=module.SMALLEST), mini_model(padding=module.SMALLEST)
    long = replace(long, network=long.network.double(), dtype=torch.float64)
    for model, dtype, said, way in (
        (mini, torch.float32, "float64", "by_equations"),
        (wide, torch.float32, "float32 exponentials, float64 sums, expected rank within 5e-6", "by_sweep"),
        (long, torch.float64, "float64", "by_equations"),
    ):
        taken.clear()
        assert model.dtype == dtype
        sheet = losscore.score(model, "They cost 2 * 13 = 26 euros.")
        assert sheet.provenance["statistics_dtype"] == said
        assert set(taken) == {way}
