"""A fine-tuned model on the pages: offered in its own session only, compared with its base, gone with one sentence."""

import json
import re
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

import losscore
from app import session
from app.session import Request, SheetStore
from losscore.errors import LosscoreError
from losscore.lanes.change import change_payload, change_words, largest_changes, summary
from tests.tiny import mini_model

MAIN = Path(__file__).resolve().parents[2] / "app" / "main.py"
TEXT = "8 pens cost 12.5 euros"
BASE, TUNED = mini_model(seed=0), mini_model(seed=1)
LABEL = "NLL <b>after</b> 20 steps"


@pytest.fixture(autouse=True)
def small_models(monkeypatch):
    """The pages with one small model on this computer; a server's store of its own."""
    store = SheetStore()

    def load(name, dtype="float32"):
        if name != "mini":
            raise LosscoreError(f"There is no model {name}.")
        return BASE

    monkeypatch.setattr(session, "_model", load)
    monkeypatch.setattr(session, "model_names", lambda: ["mini"])
    monkeypatch.setattr(session, "sheets", lambda: store)
    return store


def as_session(monkeypatch) -> dict:
    """From here on, the state of a new session."""
    state: dict = {}
    monkeypatch.setattr(st, "session_state", state)
    return state


def registered(monkeypatch, base: str = "mini") -> tuple[str, dict]:
    """The key of a tuned model, and the state of the session that holds it."""
    with monkeypatch.context() as within:
        state = as_session(within)
        return session.add_tuned(LABEL, TUNED, base), state


def opened(state: dict, chosen: str | None = None, **query: str) -> AppTest:
    page = AppTest.from_file(str(MAIN), default_timeout=60)
    for name, value in state.items():
        page.session_state[name] = value
    for name, value in query.items():
        page.query_params[name] = value
    page.run()
    page.text_area(key="text").set_value(TEXT)
    if chosen:
        page.selectbox(key="model").select(chosen)
    return page.run()


def changed(page: AppTest) -> AppTest:
    page.button_group(key="view").set_value("change")
    return page.run()


def strip_data(page: AppTest) -> dict:
    return json.loads(page.get("bidi_component")[0].proto.json)


def words(page: AppTest) -> str:
    return "\n".join(element.value for element in [*page.markdown, *page.caption]).replace("\\", "")


def test_a_tuned_model_is_offered_by_its_label_and_read_like_any_other(monkeypatch):
    key, state = registered(monkeypatch)
    page = opened(state, key)
    assert not page.exception
    assert [option.partition(" · tuned ")[0] for option in page.selectbox(key="model").options] == ["mini", LABEL]
    p = losscore.score(TUNED, TEXT).columns["p"]
    assert float(strip_data(page)["lanes"][0]["value"][3]) == pytest.approx(p[3], rel=0.05)
    assert page.button_group(key="view").options[-1] == "Change since base"


def test_what_changed_stands_over_the_text_and_in_words(monkeypatch):
    key, state = registered(monkeypatch)
    page = changed(opened(state, key))
    assert not page.exception
    base, tuned = losscore.score(BASE, TEXT), losscore.score(TUNED, TEXT)
    assert strip_data(page)["lanes"] == change_payload(base, tuned)["lanes"]
    assert summary(base, tuned) in words(page)
    row = strip_data(page)["selected"]
    assert change_words(base, tuned, row) in words(page)
    shown = page.dataframe[0].value
    assert list(shown["token"]) == [change.token for change in largest_changes(base, tuned)]


def test_bits_are_bits_in_the_lane_and_in_the_words(monkeypatch):
    key, state = registered(monkeypatch)
    page = changed(opened(state, key))
    page.button_group(key="units").set_value("bits").run()
    assert "bits" in strip_data(page)["lanes"][1]["high"]
    assert f"{strip_data(page)['lanes'][1]['value'][1]} bits" in words(page)


def test_other_models_have_no_change_to_show(monkeypatch):
    key, state = registered(monkeypatch)
    page = changed(opened(state, key))
    page.selectbox(key="model").select("mini").run()
    assert not page.exception
    assert "Since the base" not in words(page)
    assert page.button_group(key="view").options == ["Six panes", "Stripes"]
    assert len(strip_data(page)["lanes"]) == 6


def test_the_page_opens_on_the_change_of_a_model_chosen_elsewhere(monkeypatch):
    key, state = registered(monkeypatch)
    page = opened(state | {"model": key, "view": "change"})
    assert not page.exception
    assert page.selectbox(key="model").value == key
    assert [lane["scale"] for lane in strip_data(page)["lanes"]] == ["diverging"] * 3


@pytest.mark.parametrize("named", ["tuned:0123456789abcdef0123456789abcdef", "NLL, 20 steps · tuned 0123abcd"])
def test_a_link_to_somebody_elses_tuned_model_falls_back_with_a_plain_notice(named):
    page = opened({}, model=named, view="change")
    assert not page.exception
    assert not page.error
    assert page.selectbox(key="model").value == "mini"
    assert len(page.warning) == 1
    assert "stays with the tab that made it" in page.warning[0].value
    assert len(strip_data(page)["lanes"]) == 6
    page.selectbox(key="model").select("mini").run()
    page.text_area(key="text").set_value("other words").run()
    assert not page.exception


def test_the_notice_goes_when_another_model_is_picked(monkeypatch):
    key, state = registered(monkeypatch)
    page = opened(state, model="NLL, 20 steps · tuned 0123abcd")
    assert len(page.warning) == 1
    page.selectbox(key="model").select(key).run()
    assert not page.exception
    assert not page.warning


def test_a_model_that_is_dropped_while_it_is_chosen_gets_one_plain_sentence(monkeypatch):
    key, state = registered(monkeypatch)
    page = opened(state, key)
    page.session_state["tuned_models"] = {}
    page.text_area(key="text").set_value("another text").run()
    assert not page.exception
    assert len(page.warning) == 1
    assert page.selectbox(key="model").value == "mini"


def test_the_other_pages_say_so_too(monkeypatch):
    key, state = registered(monkeypatch)
    page = opened(state, key)
    page.session_state["tuned_models"] = {}
    session.sheets()._sheets.clear()
    page.switch_page("views/objectives.py").run()
    assert not page.exception
    assert len(page.error) == 1
    assert "pick another model" in page.error[0].value.replace("\\", "")


def test_a_base_that_cannot_be_read_leaves_the_page_as_it_is(monkeypatch):
    key, state = registered(monkeypatch, base="nobody/gone")
    page = opened(state, key)
    assert not page.exception
    assert "nobody/gone" in page.warning[0].value.replace("\\", "")
    assert len(strip_data(page)["lanes"]) == 6
    assert len(page.button_group(key="view").options) == 2


def test_the_objectives_page_weighs_by_the_tuned_model(monkeypatch):
    key, state = registered(monkeypatch)
    page = opened(state, key)
    page.switch_page("views/objectives.py").run()
    assert not page.exception
    assert not page.error
    (dft,) = [lane for lane in strip_data(page)["lanes"] if lane["title"] == "DFT"]
    p = losscore.score(TUNED, TEXT).columns["p"]
    assert [float(value) for value in dft["value"][1:]] == pytest.approx(
        p[1:].tolist(), rel=0.05
    )  # shown with two digits


def test_every_export_names_the_tuned_model(monkeypatch):
    import dataclasses

    model = dataclasses.replace(TUNED, name="mini, tuned", notes=("Fine-tuned from mini with NLL.",))
    with monkeypatch.context() as within:
        state = as_session(within)
        key = session.add_tuned(LABEL, model, "mini")
    page = opened(state, key)
    made = json.loads(page.json[0].value)
    assert made["model"] == "mini, tuned"
    assert "Fine-tuned from mini with NLL." in made["notes"]
    assert "Fine-tuned from mini with NLL." in words(page)


def test_two_sessions_never_share_a_model_or_a_sheet(monkeypatch, small_models):
    one, other = as_session(monkeypatch), {}
    mine = session.add_tuned(LABEL, TUNED, "mini")
    monkeypatch.setattr(st, "session_state", other)
    theirs = session.add_tuned(LABEL, mini_model(seed=2), "mini")
    assert mine != theirs
    assert session.tuned_models() == {theirs: LABEL}
    assert session.base_of(mine) is None
    with pytest.raises(LosscoreError, match="pick another model"):
        session.model(mine)
    sheets = [small_models.get(Request(key, TEXT, None, "auto", False), list) for key in (mine, theirs)]
    assert sheets[0] is not sheets[1]
    monkeypatch.setattr(st, "session_state", one)
    assert session.model(mine) is TUNED


def test_a_session_keeps_its_latest_four_and_a_model_keeps_its_key(monkeypatch):
    as_session(monkeypatch)
    models = [mini_model(seed=seed) for seed in range(5)]
    keys = [session.add_tuned(f"run {seed}", model, "mini") for seed, model in enumerate(models)]
    assert len(set(keys)) == 5
    assert session.tuned_models() == {key: f"run {seed}" for seed, key in enumerate(keys) if seed}
    assert session.add_tuned("again", models[1], "mini") == keys[1]
    assert [session.base_of(key) for key in keys] == [None, *["mini"] * 4]
    assert session.base_of("mini") is None
    with pytest.raises(LosscoreError, match="pick another model"):
        session.model(keys[0])


def test_a_key_is_no_name_that_a_model_could_be_loaded_by(monkeypatch):
    as_session(monkeypatch)
    key = session.add_tuned(LABEL, TUNED, "mini")
    assert session.is_tuned(key)
    assert not any(map(session.is_tuned, ["mini", "org/tuned", "./tuned", "tuned.gguf"]))


def test_a_text_of_more_tokens_than_a_browser_draws_at_once_is_drawn_in_parts(monkeypatch):
    monkeypatch.setattr(session, "DRAWN_TOKENS", 10)
    key, state = registered(monkeypatch)
    page = opened(state, key)
    text = "They cost 2 * 13 = 26 euros. " * 3
    page.text_area(key="text").set_value(text).run()
    shown = BASE.encoder.encode(text).shown()
    assert not page.exception
    assert strip_data(page)["tokens"] == shown[:10]
    page.selectbox(key="part").select(20).run()
    assert strip_data(page)["tokens"] == shown[20:30]
    mounted = re.search(r"strip-[0-9a-f]{16}-20", page.get("bidi_component")[0].proto.id)[0]
    page.session_state[mounted] = {"selected": 4}
    page.run()
    assert f"Token 25 of {len(shown)}" in words(page)
    assert f"of {len(shown)} tokens scored" in words(page)
    changed(page)
    assert strip_data(page)["tokens"] == shown[20:30]
    last = len(shown) // 10 * 10
    page.selectbox(key="part").select(last).run()
    assert not page.exception
    assert strip_data(page)["tokens"] == shown[last:]
