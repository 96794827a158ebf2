"""The Tokens page without a browser: its states, its words, its settings."""

import json
import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import losscore
from app import session
from tests.models import tiny_gguf

pytestmark = pytest.mark.embedded

MAIN = Path(__file__).resolve().parents[2] / "app" / "main.py"


def opened(**query: str) -> AppTest:
    page = AppTest.from_file(str(MAIN), default_timeout=120)
    for name, value in query.items():
        page.query_params[name] = value
    return page.run()


def strip_data(page: AppTest) -> dict:
    return json.loads(page.get("bidi_component")[0].proto.json)


def words(page: AppTest) -> str:
    return "\n".join(element.value for element in [*page.markdown, *page.caption])


def test_scored_before_anyone_does_anything():
    page = opened()
    data = strip_data(page)
    assert not page.exception
    assert [lane["key"] for lane in data["lanes"]] == [
        "p",
        "entropy",
        "rank",
        "ranktuner_scale",
        "deft_gate",
        "del_penalty",
    ]
    for lane in data["lanes"]:
        assert any(value is not None for value in lane["value"]), lane["key"]
    assert "tokens scored" in words(page)


def test_every_example_scores_without_an_error():
    page = opened()
    box = page.selectbox(key="example")
    assert len(box.options) >= 13
    for option in json.loads((MAIN.parents[1] / "assets" / "examples.json").read_text("utf-8")):
        page.selectbox(key="example").select(option["id"]).run()
        assert not page.exception
        assert not page.error
        data = strip_data(page)
        assert "".join(data["tokens"]), option["id"]
        assert option["look"] in words(page)
        assert page.session_state["mode"] == ("pair" if "prompt" in option else "plain")


def test_typed_text_is_what_is_scored_and_a_selection_shows_its_token():
    page = opened()
    page.text_area(key="text").set_value("The cat sat on the mat 42").run()
    data = strip_data(page)
    assert "".join(data["tokens"]).replace("·", " ") == "The cat sat on the mat 42"
    key = re.search(r"strip-[0-9a-f]{16}", page.get("bidi_component")[0].proto.id)[0]
    page.session_state[key] = {"selected": 2}
    page.run()
    assert f"Token 3 of {len(data['tokens'])}" in words(page)
    assert any(data["tokens"][2] == block.value for block in page.get("code"))
    assert "RankTuner scale" in words(page)


def test_prompt_tokens_are_context_and_not_scored():
    page = opened()
    page.selectbox(key="example").select("worked").run()
    kinds = strip_data(page)["kinds"]
    assert kinds.startswith("xp")
    assert kinds.endswith("t")
    assert f"{kinds.count('t')} of {len(kinds)} tokens scored" in words(page).replace("\\", "")


def test_bos_always_gives_the_first_token_a_prediction():
    page = opened()
    before = strip_data(page)
    page.selectbox(key="bos").select("always").run()
    after = strip_data(page)
    assert before["lanes"][0]["value"][0] is None
    assert after["kinds"][0] == "s"
    assert after["tokens"][1:] == before["tokens"]
    assert after["lanes"][0]["value"][1] is not None


def test_bits_are_nats_over_ln_2():
    page = opened()
    nats = strip_data(page)["lanes"][1]["value"][5]
    page.button_group(key="units").set_value("bits").run()
    bits = strip_data(page)["lanes"][1]["value"][5]
    assert float(bits) == pytest.approx(float(nats) / 0.6931472, rel=0.01)
    assert "bits" in strip_data(page)["lanes"][1]["high"]


def test_control_tokens_are_text_until_asked_for():
    page = opened()
    page.text_area(key="text").set_value("Hello <|im_end|> there").run()
    assert "s" not in strip_data(page)["kinds"]
    page.toggle(key="special").set_value(True).run()
    data = strip_data(page)
    assert data["tokens"][data["kinds"].index("s")] == "<|im_end|>"


def test_an_unknown_model_is_one_plain_sentence_and_the_page_stays(monkeypatch):
    monkeypatch.setattr(session, "model_names", lambda: ["smollm2-135m-instruct", "nobody/such-a-model"])
    page = opened()
    page.selectbox(key="model").select("nobody/such-a-model").run()
    assert not page.exception
    assert len(page.error) == 1
    assert "nobody" in page.error[0].value
    page.selectbox(key="model").select("smollm2-135m-instruct").run()
    assert not page.error
    assert strip_data(page)["tokens"]


@pytest.mark.parametrize("text", ["Hi", " ", "\n\n", "\u200b", "7"])
def test_tiny_and_odd_texts_never_break_the_page(text):
    page = opened()
    page.text_area(key="text").set_value(text).run()
    assert not page.exception
    assert not page.error
    assert strip_data(page)["kinds"][0] == "x"


def test_an_empty_text_asks_for_one():
    page = opened()
    page.text_area(key="text").set_value("").run()
    assert not page.exception
    assert not page.get("bidi_component")
    assert any("Type or paste" in box.value for box in page.info)


def test_a_long_text_says_how_much_is_scored_and_offers_the_rest():
    page = opened()
    page.text_area(key="text").set_value("one two three four five " * 420).run()
    assert len(strip_data(page)["tokens"]) == 2000
    assert "first 2,000 tokens" in page.warning[0].value
    page.button(key="score-all").click().run()
    assert len(strip_data(page)["tokens"]) > 2000
    assert not page.warning


def test_leading_newlines_and_trailing_blanks_survive_a_rerun():
    text = "\n\nline  "
    page = opened()
    page.text_area(key="text").set_value(text).run()
    page.button_group(key="view").set_value("stripes").run()
    assert page.text_area(key="text").value == text
    assert strip_data(page)["view"] == "stripes"


def test_a_gguf_can_be_read_with_its_original_tokenizer_on_every_page(tmp_path, monkeypatch):
    rule, digits = tmp_path / "unknown.gguf", tmp_path / "original"
    tiny_gguf.write(rule, rule="something-new")
    tiny_gguf.write(tmp_path / "known.gguf", rule="smollm")
    known = losscore.load(str(tmp_path / "known.gguf"))
    known.tokenizer.save_pretrained(digits)
    content = json.loads((digits / "tokenizer.json").read_text())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["id"] < 256]
    (digits / "tokenizer.json").write_text(json.dumps(content))
    text = "In 2024:\n\n3 boxes"
    monkeypatch.setattr(session, "model_names", lambda: ["smollm2-135m-instruct", str(rule)])

    page = opened()
    assert not [box for box in page.text_input if box.key == "tokenizer"], "only a GGUF needs it"
    page = opened(model=str(rule))
    page.text_area(key="text").set_value(text).run()
    assert "tokens may differ" in words(page)
    rebuilt = strip_data(page)["tokens"]
    page.text_input(key="tokenizer").set_value(f" {digits} ").run()
    assert not page.error
    assert not page.exception
    assert "tokens may differ" not in words(page)
    assert strip_data(page)["tokens"] != rebuilt
    read = losscore.score(losscore.load(str(rule), tokenizer=str(digits)), text)
    assert strip_data(page)["tokens"] == list(read.columns["token"])
    page.switch_page("views/objectives.py").run()
    assert not page.exception
    assert strip_data(page)["tokens"] == list(read.columns["token"])
    assert session.model(page.session_state["request"].model).tokenizer_from == str(digits)

    page = opened(model=str(rule), tokenizer=str(tmp_path))
    assert "has no tokenizer" in page.error[0].value
    assert not page.exception
