"""The noise check: where the words go, which tokens they become, and figures that can be counted by hand."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import losscore
from losscore import objectives
from losscore.errors import Cancelled, LosscoreError, TextError
from losscore.noise import (
    PAPER,
    NoiseReport,
    check,
    inject,
    measure_noise,
    noise_check,
    noise_tokens,
    worked_answers,
)
from losscore.noise.injection import WORDS
from losscore.sheet import Sheet
from losscore.text.examples import Example, read_examples
from tests.tiny import KINDS, characters, mini_model

TEXT = "Three times a number plus 11 is 50.\nSo take 11 away."
EXAMPLES = [
    Example("Q: 2 pens? ", "They cost 2 * 3 = 6 euros.\nThe answer is 6."),
    Example("", "값 ½ is paid by the people near the river in 2024."),
    Example("Lone \ud83d half, split \ud83d\ude42 ", "Words are there, and \ude42 so are these words."),
]


# Injection


def test_the_same_words_everywhere() -> None:
    noisy = inject(TEXT, rate=0.3, seed=0)
    assert noisy.text == "Three times a number pigeon plus reef 11 dolphin is 50.\nSo take 11 away."
    assert noisy.spans == ((21, 27), (33, 37), (41, 48))
    assert inject(TEXT, rate=0.3, seed=1) != noisy
    assert inject(TEXT, rate=0.3, seed=-1) != inject(TEXT, rate=0.3, seed=1)


@given(st.text("ab 1.\n½값", max_size=60), st.floats(0, 1), st.integers(0, 1000))
def test_taking_the_words_out_gives_the_text_back(text: str, rate: float, seed: int) -> None:
    noisy, spans = inject(text, rate=rate, seed=seed)
    assert all(noisy[start - 1] == " " and noisy[start:end] in WORDS for start, end in spans)
    assert all(earlier[1] < later[0] for earlier, later in pairwise(spans))
    for start, end in reversed(spans):
        # A word stands between blanks and never inside, before or after the text's own words.
        assert noisy[: start - 1].strip()
        assert noisy[end].isspace()
        noisy = noisy[: start - 1] + noisy[end:]
    assert noisy == text
    gaps = max(0, len(text.split()) - 1)
    assert math.floor(rate * gaps) <= len(spans) <= math.ceil(rate * gaps)


def test_the_rate_is_met_on_average_by_texts_with_few_gaps() -> None:
    counts = [len(inject("a b c d e f g h", rate=0.1, seed=seed).spans) for seed in range(2000)]
    assert set(counts) == {0, 1}
    assert np.mean(counts) == pytest.approx(0.7, abs=0.04)


def test_every_gap_and_every_word_is_in_the_draw() -> None:
    noisy = [inject("a b c d", rate=0.34, seed=seed) for seed in range(4000)]
    assert {text[start:end] for text, spans in noisy for start, end in spans} == set(WORDS)
    places = {text[:start].count(" ") for text, spans in noisy for start, _ in spans[:1]}
    assert places == {1, 2, 3}


def test_all_gaps_or_none() -> None:
    assert len(inject(TEXT, rate=1, seed=3).spans) == 11
    assert inject(TEXT, rate=0, seed=3) == (TEXT, ())


@pytest.mark.parametrize("text", ["", " ", "word", " word\n"])
def test_a_text_without_gaps_stays_as_it_is(text: str) -> None:
    assert inject(text, rate=1, seed=0) == (text, ())


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_a_rate_is_a_share(rate: float) -> None:
    with pytest.raises(LosscoreError, match="between 0 and 1"):
        inject(TEXT, rate=rate, seed=0)


def test_two_hundred_plain_words() -> None:
    assert len(set(WORDS)) == len(WORDS) == 200
    assert all(re.fullmatch("[a-z]{3,}", word) for word in WORDS)


# Tokens


@pytest.mark.parametrize("kind", [*KINDS, "characters"])
def test_a_token_is_noise_when_a_byte_of_a_word_is_in_it(kind: str) -> None:
    text = "It costs ½ of 12.5 = 6.25 euros,\nnear the 값 river station."
    noisy = inject(text, rate=0.5, seed=2)
    sheet = losscore.score(mini_model(characters() if kind == "characters" else KINDS[kind]()), noisy.text)
    wanted = {
        at
        for start, end in noisy.spans
        for at in range(len(noisy.text[:start].encode()), len(noisy.text[:end].encode()))
    }
    expected, at = [], 0
    for data in map(bytes.fromhex, sheet.columns["bytes"]):
        expected.append(any(at + i in wanted for i in range(len(data))))
        at += len(data)
    assert noise_tokens(sheet, noisy.spans).tolist() == expected
    assert 0 < sum(expected) < len(expected)


def test_the_blank_before_a_word_is_noise_only_with_the_word() -> None:
    merged = losscore.score(mini_model(KINDS["gpt2"]()), "pens cost euros")
    assert [t for t, n in zip(merged.columns["token"], noise_tokens(merged, [(5, 9)]), strict=True) if n] == ["·cost"]
    single = losscore.score(mini_model(characters()), "pens cost euros")
    assert np.flatnonzero(noise_tokens(single, [(5, 9)])).tolist() == [5, 6, 7, 8]


# Figures


def figures(weights: list[float], noise: list[int], sequence: list[int], top: float) -> tuple[float, float, float]:
    arrays = (np.array(weights, dtype=np.float64), np.array(noise, dtype=bool), np.array(sequence, dtype=np.float64))
    return measure_noise(*arrays, top)


def test_figures_by_hand() -> None:
    # The four largest of eight: 9, 8, 7, 6. Noise among them: 8 and 6 (of 8, 6, 2).
    weights = [9, 8, 1, 2, 7, 6, 3, 4]
    assert figures(weights, [0, 1, 0, 1, 0, 1, 0, 0], [0, 0, 0, 0, 1, 1, 2, 2], 0.5) == (2 / 4, 2 / 3, 1.0)
    # The noise of text 1 has weight 4 and is missed.
    assert figures(weights, [0, 1, 0, 1, 0, 0, 0, 1], [0, 0, 0, 0, 1, 1, 1, 1], 0.5) == (1 / 4, 1 / 3, 1 / 2)


@pytest.mark.parametrize(("size", "top", "k"), [(30, 0.1, 3), (31, 0.1, 4), (1, 0.1, 1), (10, 1.0, 10), (100, 0.07, 7)])
def test_the_top_is_rounded_up_but_not_by_rounding_errors(size: int, top: float, k: int) -> None:
    weights = list(range(size))
    precision, recall, _ = figures(weights, [1] * size, [0] * size, top)
    assert (precision, recall) == (1.0, k / size)


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans(), st.integers(0, 1)), min_size=1, max_size=8), st.data())
def test_ties_are_what_all_choices_give_on_average(tokens: list[tuple[int, bool, int]], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(tokens)))
    noisy = {at for at, (_, noise, _) in enumerate(tokens) if noise}
    by_text = [{at for at in noisy if tokens[at][2] == text} for text in (0, 1)]
    by_text = [own for own in by_text if own]
    total = {chosen: sum(tokens[at][0] for at in chosen) for chosen in combinations(range(len(tokens)), k)}
    best = [set(chosen) for chosen, weight in total.items() if weight == max(total.values())]
    caught = np.mean([len(chosen & noisy) for chosen in best])
    found = figures(*map(list, zip(*tokens, strict=True)), k / len(tokens))  # type: ignore[arg-type]
    assert found[0] == pytest.approx(caught / k)
    if noisy:
        hit = np.mean([[bool(chosen & own) for own in by_text] for chosen in best])
        assert found[1:] == pytest.approx((caught / len(noisy), hit))
    else:
        assert math.isnan(found[1])
        assert math.isnan(found[2])


def test_weights_that_differ_by_rounding_are_ties() -> None:
    one = np.nextafter(1.0, 2.0)
    assert figures([one, 1, 1, 1], [1, 0, 0, 0], [0] * 4, 0.25) == (1 / 4, 1 / 4, 1 / 4)


# The check


@pytest.fixture(scope="module")
def report(mini: Any) -> NoiseReport:
    chosen = [objectives.nll, objectives.deft, objectives.ranktuner.with_parameters(base="p", exponent=0.5)]
    return noise_check(mini, EXAMPLES, chosen, rate=0.5)


def test_equal_weights_give_the_base_rate(report: NoiseReport) -> None:
    nll, k = report.rows[0], math.ceil(report.tokens / 10)
    assert report.base_rate == report.noise_tokens / report.tokens
    assert nll.tokens == report.tokens
    assert nll.precision == pytest.approx(report.base_rate, rel=1e-12)
    assert nll.recall == pytest.approx(k / report.tokens, rel=1e-12)


def test_the_rows_say_which_objective_they_are_of(report: NoiseReport) -> None:
    assert [row.objective for row in report.rows] == ["nll", "deft", "ranktuner:base=p,exponent=0.5"]
    assert (objectives.nll + 0.3 * objectives.ntl_was).label.startswith("nll+")


def weigh_words(sheet: Sheet, *_: Any, **__: Any) -> Any:
    """1 at the tokens of a word of the list, found in the text itself, and at every token of the prompt."""
    inside = np.zeros(len(sheet.text) + 1, dtype=bool)
    for found in re.finditer(rf"(?<=\s)({'|'.join(WORDS)})(?=\s)", sheet.text):
        inside[found.start() : found.end()] = True
    inside[: sheet.provenance["prompt_characters"]] = True
    spans = zip(sheet.columns["start"], sheet.columns["end"], strict=True)
    return np.array([inside[start:end].any() for start, end in spans], dtype=np.float64)


def test_an_objective_that_weighs_noise_most(mini: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "weigh", weigh_words)
    (row,) = noise_check(mini, EXAMPLES, [objectives.nll], rate=1).rows
    assert (row.precision, row.sequences_hit) == (1.0, pytest.approx(1.0, abs=0.01))
    monkeypatch.setattr(check, "weigh", lambda *a, **k: -weigh_words(*a, **k))
    (row,) = noise_check(mini, EXAMPLES, [objectives.nll], rate=1).rows
    assert (row.precision, row.recall, row.sequences_hit) == (0.0, 0.0, 0.0)


def test_tokens_without_a_weight_are_left_out(mini: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "weigh", lambda *a, **k: np.where(weigh_words(*a, **k) > 0, np.nan, 1.0))
    found = noise_check(mini, EXAMPLES, [objectives.nll], rate=0.5)
    (row,) = found.rows
    assert (row.precision, row.recall, row.sequences_hit) == (0.0, None, None)
    assert row.tokens == found.tokens - found.noise_tokens
    assert json.loads(found.to_json())["objectives"][0]["recall"] is None
    assert found.to_csv().splitlines()[2].endswith(",0.0,,")
    assert found.to_frame()["recall"].isna().all()


def test_only_the_response_is_made_noisy_and_counted(mini: Any) -> None:
    prompt = "one two three four five six seven "
    found = noise_check(mini, [Example(prompt, "a b")], [objectives.nll], rate=1)
    alone = losscore.score(mini, inject("a b", rate=1, seed="0/0").text, prompt)
    assert found.tokens == alone.summary.scored
    assert found.noise_tokens < found.tokens


def test_the_top_is_of_all_answers_together(mini: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # The long answer outweighs the short one altogether, and more than half of the tokens are in it.
    size = {"short": 0.0, "long": 1.0}
    monkeypatch.setattr(
        check, "weigh", lambda sheet, *_, **__: size[sheet.text.split()[0]] * (1 + weigh_words(sheet, model=None))
    )
    two = [Example("", "short one here"), Example("", "long " + "one here or there " * 8)]
    (row,) = noise_check(mini, two, [objectives.nll], rate=1, top=0.5).rows
    assert row.sequences_hit == 0.5
    (row,) = noise_check(mini, two[::-1], [objectives.nll], rate=1, top=0.5).rows
    assert row.sequences_hit == 0.5


def test_seeds_decide(mini: Any, report: NoiseReport) -> None:
    chosen = [objectives.nll, objectives.deft, objectives.ranktuner.with_parameters(base="p", exponent=0.5)]
    assert noise_check(mini, EXAMPLES, chosen, rate=0.5) == report
    assert noise_check(mini, EXAMPLES, chosen, rate=0.5, seed=1).rows != report.rows


def test_equal_answers_get_different_words(mini: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []

    def keep(sheet: Sheet, *_: Any, **__: Any) -> Any:
        texts.append(sheet.text)
        return np.ones(len(sheet))

    monkeypatch.setattr(check, "weigh", keep)
    noise_check(mini, [EXAMPLES[0]] * 2, [objectives.nll], rate=0.5)
    assert len(set(texts)) == 2


def test_progress_and_stopping(mini: Any) -> None:
    shares: list[float] = []
    noise_check(mini, EXAMPLES, [objectives.nll], rate=0.5, progress=shares.append)
    assert shares == sorted(set(shares))
    assert shares[-1] == pytest.approx(1)
    with pytest.raises(Cancelled):
        noise_check(mini, EXAMPLES, [objectives.nll], rate=0.5, stop=lambda: True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"examples": []}, "no worked answer"),
        ({"objectives": []}, "no objective"),
        ({"rate": 0.0}, "raise the rate"),
        ({"rate": 2.0}, "between 0 and 1"),
        ({"top": 0.0}, "above 0"),
        ({"examples": [Example("", "")]}, "longer answers"),
    ],
)
def test_what_cannot_be_checked_is_a_sentence(mini: Any, change: dict[str, Any], said: str) -> None:
    with pytest.raises(LosscoreError, match=said):
        noise_check(mini, **({"examples": EXAMPLES, "objectives": [objectives.nll]} | change))


def test_the_report_as_json_csv_and_table(report: NoiseReport) -> None:
    table = json.loads(report.to_json(), parse_constant=pytest.fail)
    assert (table["tokens"], table["base_rate"]) == (report.tokens, report.base_rate)
    assert [row["precision"] for row in table["objectives"]] == [row.precision for row in report.rows]
    assert table["provenance"]["rate"] == 0.5
    assert table["provenance"]["answers"] == 3
    assert len(table["provenance"]["answers_sha256"]) == 64
    assert len(table["paper"]["rows"]) == 3
    head, titles, *rows = report.to_csv().splitlines()
    assert head.startswith('"# losscore {')
    assert titles == "objective,title,kind,base_rate,tokens,precision,recall,sequences_hit"
    assert [row.split(",")[0].strip('"') for row in rows] == ["nll", "deft", "ranktuner:base=p"]
    frame = report.to_frame()
    assert list(frame.columns) == titles.split(",")
    assert frame.attrs["provenance"]["model"] == "mini"


def test_the_rows_of_the_paper_agree_on_how_much_noise_there_was() -> None:
    assert [row.precision * 0.1 / row.recall for row in PAPER] == pytest.approx([0.0082] * 3, abs=5e-5)


# Worked answers

NUMBER = r"-?\d+(?:\.\d+)?"


def test_the_shipped_answers_are_right() -> None:
    answers = worked_answers()
    assert len(answers) == len({answer.prompt for answer in answers}) == 36
    for prompt, response in answers:
        assert re.fullmatch(r"Question: .+[?.]\nAnswer: ", prompt)
        equations = re.findall(rf"({NUMBER}(?: [-+*/] {NUMBER})+) = ({NUMBER})(?![\d])", response)
        assert len(equations) == response.count("=") >= 1
        for left, right in equations:
            exact = re.sub(NUMBER, lambda number: f"Fraction('{number[0]}')", left)
            assert eval(exact, {"Fraction": Fraction}) == Fraction(right), left
        last = re.fullmatch(rf".* The answer is ({NUMBER})\.", response.replace("\n", " "), re.S)
        assert last, response
        assert last[1] == equations[-1][1]
        assert 2 <= len(re.findall(r"[.](?:\s|$)", response)) <= 5


def lines(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(data)
    return path


def test_a_file_of_answers(tmp_path: Path) -> None:
    data = (
        b'\xef\xbb\xbf{"prompt": "a ", "response": "b", "id": 1}\r\n\r\n{"text": "c", "id": 2}\n'
        + '{"response": "d\u2028e"}'.encode()
    )
    assert read_examples(lines(tmp_path, data)) == [Example("a ", "b"), Example("", "c"), Example("", "d\u2028e")]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "3",
        "[]",
        "null",
        "{}",
        '{"prompt": "a"}',
        '{"response": 1}',
        '{"prompt": null, "text": "a"}',
        '{"response": "a", "text": "b"}',
        '{"response": "a", "promt": "b"}',
        "[" * 100_000,
    ],
)
def test_a_bad_line_is_named_by_its_number(tmp_path: Path, line: str) -> None:
    with pytest.raises(TextError, match=r"answers\.jsonl, line 3 ") as error:
        read_examples(lines(tmp_path, f'{{"text": "a"}}\n\n{line}\n'.encode()))
    assert "\n" not in str(error.value)


@pytest.mark.embedded
def test_the_shipped_answers_on_the_embedded_model(embedded: Any) -> None:
    chosen = [objectives.nll, objectives.dft, objectives.ranktuner, objectives.overtone]
    nll, dft, ranktuner, overtone = noise_check(embedded, worked_answers()[:4], chosen).rows
    assert nll.precision is not None
    # A random word is improbable, so p keeps the emphasis away from it and RankTuner's scale alone does not.
    assert dft.precision == 0
    assert ranktuner.precision is not None
    assert ranktuner.precision > 2 * nll.precision
    assert overtone.tokens == nll.tokens
