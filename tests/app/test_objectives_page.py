"""The Objectives page without a browser."""

import json
import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

pytestmark = pytest.mark.embedded

MAIN = Path(__file__).resolve().parents[2] / "app" / "main.py"


def opened() -> AppTest:
    page = AppTest.from_file(str(MAIN), default_timeout=120).run()
    return page.switch_page("views/objectives.py").run()


def strip_data(page: AppTest) -> dict:
    return json.loads(page.get("bidi_component")[0].proto.json)


def words(page: AppTest) -> str:
    return "\n".join(element.value for element in [*page.markdown, *page.caption])


def test_one_stripe_per_objective_on_the_text_of_the_tokens_page():
    page = AppTest.from_file(str(MAIN), default_timeout=120).run()
    page.selectbox(key="example").select("synonyms").run()
    page.switch_page("views/objectives.py").run()
    assert not page.exception
    data = strip_data(page)
    assert "·essentially" in data["tokens"]
    assert [lane["title"] for lane in data["lanes"]] == ["NLL", "DFT", "EAFT", "RankTuner", "Cayley", "DEFT", "DEL"]
    weights = {lane["key"]: lane["value"] for lane in data["lanes"]}
    assert set(weights["nll"][1:]) == {"1"}


def test_the_selected_token_gets_a_verdict_from_every_objective_in_order():
    page = opened()
    data = strip_data(page)
    key = re.search(r"weights-[0-9a-f]{16}-[0-9a-f]{8}", page.get("bidi_component")[0].proto.id)[0]
    row = data["tokens"].index("·not")
    page.session_state[key] = {"selected": row}
    page.run()
    text = words(page)
    assert f"Token {row + 1} of" in text
    table = next(element.value for element in page.markdown if element.value.startswith("| objective"))
    listed = re.findall(r"\| \*\*(.+?)\*\* \| (\S+) \|", table)
    assert len(listed) == len(data["lanes"])
    numbers = [float(number) for _, number in listed]
    assert numbers == sorted(numbers)
    assert dict(listed)["NLL"] == "1"


@pytest.mark.parametrize("section", ["Landscape", "Gates", "Gradient"])
def test_every_section_has_a_picture_how_to_read_it_and_its_numbers(section):
    page = opened()
    page.button_group(key="section").set_value(section).run()
    assert not page.exception
    assert not page.error
    assert page.get("plotly_chart")
    assert "How to read it" in words(page)
    assert len(page.dataframe) >= 1
    assert page.get("download_button")


def test_every_chosen_objective_says_its_source_and_where_published_code_differs():
    page = opened()
    assert "arXiv 2602.01745" in words(page)
    assert any("3.0 instead of ln 20" in caption.value.replace("\\", "") for caption in page.caption)
    assert len(page.get("latex")) == 7


def test_the_gradients_shares_stand_under_each_token():
    page = opened()
    page.button_group(key="section").set_value("Gradient").run()
    data = strip_data(page)
    assert [lane["title"] for lane in data["lanes"]][:2] == ["NLL", "DFT"]
    nll = [float(value) for value in data["lanes"][0]["value"] if value is not None]
    # sum_v |dL/dz_v| = 2 (1 - p) for cross-entropy
    assert all(0 <= value <= 2 for value in nll)
    assert max(fill for fill in data["lanes"][0]["fill"] if fill is not None) == 100


def test_own_formula_stands_beside_the_others_and_a_wrong_one_gets_a_sentence():
    page = opened()
    page.text_input(key="formula").set_value("p**0.5").run()
    lanes = strip_data(page)["lanes"]
    assert lanes[-1]["title"] == "My formula"
    page.text_input(key="formula").set_value("p * colour").run()
    assert not page.exception
    assert "colour" in page.error[0].value
    assert strip_data(page)["lanes"][-1]["title"] == "DEL"


def test_a_parameter_changes_the_weights_and_runs_no_model(monkeypatch):
    page = opened()
    page.multiselect(key="objectives").set_value(["tsallis"]).run()
    before = strip_data(page)["lanes"][0]["value"]
    from losscore.models.model import Model

    monkeypatch.setattr(Model, "blocks", lambda *_, **__: pytest.fail("the model ran"))
    page.number_input(key="parameter-tsallis-a").set_value(1.0).run()
    assert not page.exception
    after = strip_data(page)["lanes"][0]["value"]
    assert after != before
    assert float(after[10]) == pytest.approx(float(before[10]) ** 2, rel=0.02)


def test_the_most_disputed_come_first_when_asked():
    page = opened()
    tokens = strip_data(page)["tokens"]
    page.button_group(key="order").set_value("disagreement").run()
    moved = strip_data(page)["tokens"]
    assert moved != tokens
    assert sorted(moved) == sorted(tokens[1:])


def test_without_objectives_or_targets_the_page_says_what_to_do():
    page = opened()
    page.multiselect(key="objectives").set_value([]).run()
    assert "Pick at least one" in page.info[0].value
    page = AppTest.from_file(str(MAIN), default_timeout=120).run()
    page.text_area(key="text").set_value("Hi").run()
    page.switch_page("views/objectives.py").run()
    assert not page.exception
    assert "at least two tokens" in page.info[0].value


def test_the_noise_check_runs_from_the_page():
    page = opened()
    page.multiselect(key="objectives").set_value(["nll", "deft"]).run()
    page.button_group(key="section").set_value("Noise check").run()
    page.number_input[2].set_value(2).run()
    page.button(key="run-noise").click().run()
    assert not page.exception
    assert not page.error
    frame = page.dataframe[0].value
    assert list(frame["title"]) == ["NLL", "DEFT"]
    assert frame["precision"][0] == pytest.approx(frame["base_rate"][0])


def test_the_noise_check_says_what_was_changed_in_a_file():
    page = opened()
    page.multiselect(key="objectives").set_value(["nll"]).run()
    page.button_group(key="section").set_value("Noise check").run()
    answers = '{"prompt": "2 + 2 =", "response": "It is 4, as two and two make four."}'.encode("utf-16")
    page.file_uploader[0].set_value(("answers.jsonl", answers, "application/json")).run()
    page.button(key="run-noise").click().run()
    assert not page.exception
    assert not page.error
    assert any("answers.jsonl: a UTF-16" in element.value.replace("\\", "") for element in page.caption)
    assert len(page.dataframe) >= 1
