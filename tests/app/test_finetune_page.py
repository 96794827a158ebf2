"""The Fine-tune page without a browser: idle, running to its end, racing, and everything that can be wrong."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from app import jobs, session
from app.components.tune_setup import split_texts
from app.jobs import Job

MAIN = Path(__file__).resolve().parents[2] / "app" / "main.py"


@pytest.fixture(autouse=True)
def small(request, mini, monkeypatch):
    """The mini model instead of the embedded one, except where a test asks for that."""
    if "embedded" not in request.keywords:
        monkeypatch.setattr(session, "_model", lambda name, dtype="float32": mini)
        monkeypatch.setattr(session, "model_names", lambda: ["mini"])


def opened(text: str = "Two and two is 5.") -> AppTest:
    page = AppTest.from_file(str(MAIN), default_timeout=240).run()
    page.text_area(key="text").set_value(text).run()
    page.switch_page("views/finetune.py").run()
    assert not page.exception
    return page


def press(page: AppTest, steps: int = 1) -> Job:
    """Press the button and wait for the end; the page as it is then."""
    page.number_input(key="tune-steps").set_value(steps).run()
    page.button(key="tune-start").click().run()
    job: Job = page.session_state["fine_tune_job"]
    assert job.wait(200)
    page.run()
    assert not page.exception
    return job


def words(page: AppTest) -> str:
    return "\n".join(e.value for e in [*page.markdown, *page.caption, *page.success, *page.info, *page.error]).replace(
        "\\", ""
    )


def strip_data(page: AppTest) -> dict[str, Any]:
    return json.loads(page.get("bidi_component")[0].proto.json)


def charts(page: AppTest) -> int:
    return len(page.get("vega_lite_chart"))


def test_idle_it_offers_the_text_of_the_tokens_page_and_one_button():
    page = opened()
    assert not page.button(key="tune-start").disabled
    assert any(block.value == "Two and two is 5." for block in page.get("code"))
    assert not page.get("bidi_component")
    assert "20 steps" in words(page)


@pytest.mark.embedded
def test_a_run_to_its_end_shows_what_changed_where_and_what_it_cost():
    page = opened()
    job = press(page, 3)
    text = words(page)
    assert "Finished after 3 steps." in text
    assert "Mean p over the targets rose from" in text
    lanes = strip_data(page)["lanes"]
    assert [lane["title"] for lane in lanes] == ["Before", "After"]
    before, after = ([float(value) for value in lane["value"] if value] for lane in lanes)
    assert sum(after) > sum(before)
    mean, nll, _, elsewhere = page.metric
    shots = job.view().runs[0].record.snapshots
    assert mean.value == f"{shots[-1].p:.3f}"
    assert float(nll.delta) < 0
    assert float(elsewhere.value) > 0
    # The selected token's bars, four curves, the heat map; at a digit also the ten digits and their entropy.
    assert charts(page) == 1 + 4 + 1
    assert len(page.get("plotly_chart")) >= 1
    assert not page.button(key="tune-start").disabled
    costs = page.dataframe[-1].value
    assert list(costs.columns) == ["text", "NLL now", "change of NLL", "KL"]
    assert (costs["KL"] >= 0).all()
    page.session_state[f"tune-strip-{job.id}-0"] = {"selected": strip_data(page)["tokens"].index("5")}
    page.run()
    assert charts(page) == 3 + 4 + 1


@pytest.fixture
def occupied() -> Iterator[Callable[[], None]]:
    """Someone else fine-tunes on this device, until what this gives is called."""
    other = object()
    jobs.line().join("cpu", other)
    left = []

    def leave() -> None:
        if not left:
            left.append(True)
            jobs.line().leave("cpu", other)

    yield leave
    leave()


@pytest.mark.parametrize("objectives", [["nll"], ["nll", "del_loss"]])
def test_before_the_first_step_the_lanes_of_the_tokens_page_stand_already(occupied, objectives):
    page = opened()
    page.multiselect(key="tune-objectives").set_value(objectives).run()
    page.number_input(key="tune-steps").set_value(1).run()
    page.button(key="tune-start").click().run()
    assert not page.exception
    assert "Waiting" in page.get("progress")[0].proto.text
    early = strip_data(page)
    titles = ["Before", "Now"] if len(objectives) == 1 else ["Before", "NLL", "DEL"]
    assert [lane["title"] for lane in early["lanes"]] == titles
    assert all(lane["value"] == early["lanes"][0]["value"] for lane in early["lanes"])
    assert [metric.value for metric in page.metric] == ["–"] * (4 if len(objectives) == 1 else 0)
    occupied()
    job: Job = page.session_state["fine_tune_job"]
    assert job.wait(200)
    page.run()
    # The run's own first look, which the page did not make, says the same.
    own = strip_data(page)
    assert own["tokens"] == early["tokens"]
    assert own["lanes"][0]["value"] == early["lanes"][0]["value"]
    assert own["lanes"][1]["value"] != early["lanes"][1]["value"]


def test_where_nothing_was_scored_the_lanes_wait_for_the_first_look(occupied):
    page = opened()
    page.button_group(key="tune-source").set_value("pairs").run()
    page.text_area(key="tune-pairs").set_value('{"prompt": "6 * 7 = ", "response": "42"}').run()
    page.button(key="tune-start").click().run()
    assert not page.exception
    assert not page.get("bidi_component")


def test_the_step_slider_goes_back_to_the_beginning():
    page = opened()
    press(page, 1)
    page.slider[0].set_value(0).run()
    before, at_step = strip_data(page)["lanes"]
    assert at_step["title"] == "At this step"
    assert at_step["value"] == before["value"]
    # What it costs elsewhere is not looked at before the first update.
    assert page.metric[3].value == "–"


def test_a_race_starts_every_objective_from_the_same_place():
    page = opened()
    page.multiselect(key="tune-objectives").set_value(["nll", "del_loss"]).run()
    job = press(page, 1)
    assert [lane["title"] for lane in strip_data(page)["lanes"]] == ["Before", "NLL", "DEL"]
    table = page.dataframe[0].value
    assert list(table["objective"]) == ["before", "NLL", "DEL"]
    nll, penalised = (run.record.snapshots for run in job.view().runs)
    assert nll[0].nll == pytest.approx(penalised[0].nll)
    assert penalised[0].loss > penalised[0].nll, "DEL adds its penalty"


def test_the_run_and_the_adapter_can_be_kept_and_a_new_run_lets_the_old_model_go():
    page = opened()
    job = press(page, 0)
    run = json.loads(job.view().runs[0].record.to_json(), parse_constant=pytest.fail)
    assert len(run["snapshots"]) == 1
    assert job.racers[0].tuning is not None
    archive = zipfile.ZipFile(io.BytesIO(job.racers[0].tuning.adapter_archive()))
    assert {"adapter_config.json", "adapter_model.safetensors"} <= set(archive.namelist())
    assert len(page.get("download_button")) == 2
    page.button(key="tune-start").click().run()
    again: Job = page.session_state["fine_tune_job"]
    assert again is not job
    assert again.wait(200)
    assert job.racers[0].tuning is None


def test_while_one_runs_no_second_can_start_and_stop_ends_it_with_all_it_has():
    page = opened()
    page.number_input(key="tune-steps").set_value(500).run()
    page.button(key="tune-start").click().run()
    job: Job = page.session_state["fine_tune_job"]
    assert page.button(key="tune-start").disabled
    page.switch_page("views/tokens.py").run()
    assert not page.exception
    assert strip_data(page)["tokens"]
    page.switch_page("views/finetune.py").run()
    page.button(key="tune-stop").click().run()
    assert job.wait(200)
    page.run()
    assert not page.exception
    assert "Stopped" in words(page)
    assert not page.button(key="tune-start").disabled


def test_the_tuned_model_opens_on_the_tokens_page_with_what_changed():
    page = opened()
    press(page, 1)
    page.button(key="tune-see-0").click().run()
    assert not page.exception
    assert page.session_state["model"].startswith("tuned:")
    assert next(iter(page.session_state["tuned_models"].values())).label == "NLL, 1 step"
    page.switch_page("views/tokens.py").run()
    assert "Since the base model, this token" in words(page)
    page.switch_page("views/finetune.py").run()
    page.button(key="tune-start").click().run()
    job: Job = page.session_state["fine_tune_job"]
    job.cancel()
    assert job.wait(200)
    assert job.view().state != "failed", "a fine-tune of a tuned model's text starts from the base"


def test_a_failure_is_one_sentence_and_everything_received_stays(monkeypatch):
    norms = iter([1.0, 1.0, float("nan")])
    monkeypatch.setattr("losscore.finetuning.run._norm", lambda *_: next(norms))
    page = opened()
    job = press(page, 30)
    assert len(page.error) == 1
    assert "choose a smaller learning rate" in page.error[0].value
    assert [snapshot.step for snapshot in job.view().runs[0].record.snapshots] == [0, 1]
    assert "Mean p over the targets" in words(page)
    assert strip_data(page)["tokens"]
    assert not page.button(key="tune-start").disabled


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        ("not json", "line 1 is not JSON"),
        ('{"prompt": "x"}', 'give a text under "response"'),
        ('{"response": "  "}', "Every response is empty"),
        ("", "Give the model something to learn"),
    ],
)
def test_bad_pairs_are_one_sentence_and_the_button_waits(pairs, sentence):
    page = opened()
    page.button_group(key="tune-source").set_value("pairs").run()
    page.text_area(key="tune-pairs").set_value(pairs).run()
    assert not page.exception
    assert len(page.info) == 1
    assert sentence in words(page)
    assert page.button(key="tune-start").disabled


def test_what_was_changed_in_an_uploaded_file_is_said():
    page = opened()
    page.button_group(key="tune-source").set_value("pairs").run()
    pairs = '{"prompt": "6 * 7 = ", "response": "42"}'.encode("utf-16")
    page.file_uploader[0].set_value(("pairs.jsonl", pairs, "application/json")).run()
    assert not page.exception
    assert not page.button(key="tune-start").disabled
    assert any("pairs.jsonl: a UTF-16" in element.value.replace("\\", "") for element in page.caption)


def test_pairs_are_learned_and_each_can_be_looked_at():
    page = opened()
    page.button_group(key="tune-source").set_value("pairs").run()
    lines = [{"prompt": "6 * 7 = ", "response": "42"}, {"prompt": "6 * 8 = ", "response": "48"}]
    page.text_area(key="tune-pairs").set_value("\n".join(map(json.dumps, lines))).run()
    press(page, 1)
    assert strip_data(page)["kinds"].endswith("tt")
    page.selectbox[-1].set_value(1).run()
    assert "".join(strip_data(page)["tokens"]).endswith("48")


@pytest.mark.parametrize(
    ("text", "sentence"), [("", "Give the model something to learn"), ("H", "nothing to train on")]
)
def test_a_text_without_targets_says_what_to_do(text, sentence):
    page = opened("Hello there")
    request = page.session_state["request"]
    page.session_state["request"] = type(request)(request.model, text, None, request.bos, False)
    page.run()
    if not page.button(key="tune-start").disabled:
        press(page)
    assert not page.exception
    assert sentence in words(page)


def test_without_an_objective_it_asks_for_one():
    page = opened()
    page.multiselect(key="tune-objectives").set_value([]).run()
    assert page.button(key="tune-start").disabled
    assert "at least one objective" in words(page)


def test_the_learning_rate_that_stands_for_empty_is_shown():
    page = opened()
    assert page.number_input(key="tune-lr").placeholder.startswith("auto: ")
    lora = page.number_input(key="tune-lr").placeholder
    page.button_group(key="tune-method").set_value("full").run()
    assert page.number_input(key="tune-lr").placeholder != lora


def test_other_texts_are_one_a_line_or_apart_by_empty_lines():
    assert split_texts("one\ntwo\n") == ("one", "two")
    assert split_texts("one\nline\r\n\r\ntwo\n\n\n") == ("one\nline", "two")
    assert split_texts(" \n") == ()


def test_an_objective_trains_with_the_parameters_and_the_formula_that_are_set():
    page = opened()
    page.multiselect(key="tune-objectives").set_value(["tsallis"]).run()
    page.number_input(key="parameter-tsallis-a").set_value(0.25).run()
    page.text_input(key="formula").set_value("p**0.3").run()
    job = press(page)
    records = [racer.record for racer in job.racers]
    assert [racer.title for racer in job.racers] == ["tsallis:a=0.25", "My formula"]
    assert records[0].provenance["objective_settings"] == {"a": 0.25}
    log_p = np.asarray(records[0].snapshots[0].sheet().columns["log_p"])[1:]
    assert records[0].snapshots[0].loss == pytest.approx(((1 - np.exp(0.25 * log_p)) / 0.25).mean(), rel=1e-5)
    assert records[1].snapshots[0].loss == pytest.approx((-np.exp(0.3 * log_p) * log_p).mean(), rel=1e-5)


@pytest.mark.parametrize(("formula", "sentence"), [("__import__('os')", "numbers, names"), ("p **", "formula")])
def test_a_formula_that_cannot_be_read_starts_nothing(formula, sentence):
    page = opened()
    page.text_input(key="formula").set_value(formula).run()
    assert not page.exception
    assert page.button(key="tune-start").disabled
    assert sentence in words(page)


def test_a_fifth_objective_is_one_too_many():
    page = opened()
    page.multiselect(key="tune-objectives").set_value(["nll", "dft", "deft", "cayley"]).run()
    page.text_input(key="formula").set_value("p").run()
    assert page.button(key="tune-start").disabled
    assert "At most 4 objectives" in words(page)


def test_frames_that_repeat_are_drawn_without_a_clash_and_after_is_before(monkeypatch):
    page = opened()
    page.number_input(key="tune-lr").set_value(0.0).run()
    job = press(page, 3)
    assert job.view().state == "finished"
    first, *others = job.view().runs[0].record.snapshots
    assert len(others) == 3
    for shot in others:
        np.testing.assert_array_equal(shot.sheet(0).columns["log_p"], first.sheet(0).columns["log_p"])
    before, after = (pane["value"] for pane in strip_data(page)["lanes"])
    assert before == after
    for _ in range(3):
        page.run()
        assert not page.exception
