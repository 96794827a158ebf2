"""axe-core over every page in both themes, and the whole job by keyboard alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

WAIT = 120_000
SERIOUS = ("serious", "critical")
# Streamlit's own faults that no setting or style of ours reaches: rule, a part of the element's HTML, why.
KNOWN: tuple[tuple[str, str, str], ...] = ()


STILL = """() => document.getAnimations().every(
  (a) => a.playState !== "running" || !isFinite(a.effect.getComputedTiming().endTime)
)"""


def settled(page: Page) -> None:
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=WAIT)


def tokens(page: Page, server: str) -> None:
    page.goto(server)
    expect(page.locator(".losscore-strip [data-i]").first).to_be_visible(timeout=WAIT)


def stripes(page: Page, server: str) -> None:
    page.goto(f"{server}/?example=Korean&view=Stripes&bos=Always")
    expect(page.locator(".losscore-strip [data-i]").first).to_be_visible(timeout=WAIT)


def all_open(page: Page, server: str) -> None:
    tokens(page, server)
    page.get_by_text("How this was made").click()
    page.get_by_role("button", name="Settings").click()
    expect(page.get_by_text("Parse control tokens")).to_be_visible()


def section(name: str) -> Callable[[Page, str], None]:
    def go(page: Page, server: str) -> None:
        page.goto(f"{server}/objectives?section={name}")
        expect(page.get_by_text("How to read it.").or_(page.get_by_text("Low is good")).first).to_be_visible(
            timeout=WAIT
        )

    return go


def idle(page: Page, server: str) -> None:
    page.goto(f"{server}/finetune")
    expect(page.get_by_role("button", name="Fine-tune", exact=True)).to_be_enabled(timeout=WAIT)


def finished(page: Page, server: str) -> None:
    idle(page, server)
    steps = page.get_by_role("spinbutton", name="Steps")
    steps.fill("1")
    steps.press("Enter")
    settled(page)
    page.get_by_role("button", name="Fine-tune", exact=True).click()
    expect(page.get_by_text("Finished after 1 step.")).to_be_visible(timeout=WAIT)
    expect(page.get_by_text("Keep it")).to_be_visible(timeout=WAIT)


PLACES: dict[str, Callable[[Page, str], None]] = {
    "tokens": tokens,
    "stripes": stripes,
    "settings-open": all_open,
    "weights": section("Weights"),
    "landscape": section("Landscape"),
    "gates": section("Gates"),
    "gradient": section("Gradient"),
    "noise": section("Noise+check"),
    "fine-tune-idle": idle,
    "fine-tune-finished": finished,
}


@pytest.mark.parametrize("place", PLACES)
def test_axe_finds_nothing_serious_in_light_or_dark(server: str, page: Page, place: str) -> None:
    page.emulate_media(reduced_motion="reduce", color_scheme="light")
    PLACES[place](page, server)
    settled(page)
    background = "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor"
    light = page.evaluate(background)
    found = {"light": findings(page)}
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"light => {background} !== light", arg=light)
    settled(page)
    found["dark"] = findings(page)
    assert found == {"light": [], "dark": []}


def findings(page: Page) -> list[str]:
    # Hover and fading change colours for a moment.
    page.mouse.move(0, 0)
    page.wait_for_function(STILL)
    violations: list[dict[str, Any]] = Axe().run(page).response["violations"]
    return [
        f"{violation['id']} ({violation['impact']}): {node['html'][:200]} {node['failureSummary'][:200]}"
        for violation in violations
        if violation["impact"] in SERIOUS
        for node in violation["nodes"]
        if not any(violation["id"] == rule and part in node["html"] for rule, part, _ in KNOWN)
    ]


def test_axe_does_find_what_is_wrong(server: str, page: Page) -> None:
    page.goto(f"{server}/_stcore/health")
    page.set_content("<html lang=en><title>x</title><main><h1>x</h1><button></button><img src=a></main>")
    assert [line.split()[0] for line in findings(page)] == ["button-name", "image-alt"]


FOCUS = """() => {
  let e = document.activeElement;
  while (e?.shadowRoot?.activeElement) e = e.shadowRoot.activeElement;
  return [e.tagName, e.getAttribute("aria-label") || e.innerText || "", e.getAttribute("data-i") || ""];
}"""


def tab_to(page: Page, wanted: Callable[[str, str, str], bool], *, key: str = "Tab") -> tuple[str, str, str]:
    """Press Tab until the focus is on what is wanted."""
    for _ in range(120):
        page.keyboard.press(key)
        at = tuple(page.evaluate(FOCUS))
        if wanted(*at):
            return at
    pytest.fail("The keyboard does not get there.")


def test_the_whole_job_by_keyboard_alone(server: str, page: Page) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    tokens(page, server)
    settled(page)
    tab_to(page, lambda tag, label, _: tag == "TEXTAREA" and "Text" in label)
    page.keyboard.press("Control+a")
    page.keyboard.type("Two cats ate 42 mice.")
    page.keyboard.press("Control+Enter")
    expect(page.locator('.losscore-strip [data-lane="p"]')).to_contain_text("mice", timeout=WAIT)
    expect(page.locator(".losscore-strip")).to_have_count(1, timeout=WAIT)
    settled(page)

    tab_to(page, lambda _tag, _label, index: index != "")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    _, said, index = page.evaluate(FOCUS)
    assert index == "2"
    assert re.search(r"token 3 of \d+", said)
    assert re.search(r"\bp [\d.]", said), "the value is spoken too"
    expect(page.locator(".losscore-strip .tip")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".losscore-strip .tip")).to_be_hidden()
    page.keyboard.press("Enter")
    panel = page.locator(".st-key-token-panel")
    expect(panel).to_contain_text("Token 3 of", timeout=WAIT)
    expect(panel).to_contain_text("RankTuner scale")
    settled(page)
    assert page.evaluate(FOCUS)[2] == "2", "the focus stays where it was"

    tab_to(page, lambda tag, label, _: tag == "A" and label.strip() == "Fine-tune", key="Shift+Tab")
    page.keyboard.press("Enter")
    button = page.get_by_role("button", name="Fine-tune", exact=True)
    expect(button).to_be_enabled(timeout=WAIT)
    settled(page)
    tab_to(page, lambda tag, label, _: tag == "INPUT" and "Steps" in label)
    page.keyboard.press("Control+a")
    page.keyboard.type("1")
    page.keyboard.press("Enter")
    settled(page)
    tab_to(page, lambda tag, label, _: tag == "BUTTON" and label.strip() == "Fine-tune")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Finished after 1 step.")).to_be_visible(timeout=WAIT)
    settled(page)
    tab_to(page, lambda _tag, _label, index: index != "")
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page.locator(".st-key-tune-token")).to_contain_text(re.compile(r"Token (\d+) of \1"), timeout=WAIT)
    assert errors == []


def test_the_objectives_are_compared_by_keyboard_alone(server: str, page: Page) -> None:
    tokens(page, server)
    settled(page)
    tab_to(page, lambda tag, label, _: tag == "A" and label.strip() == "Objectives", key="Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_text("How to read it.").first).to_be_visible(timeout=WAIT)
    settled(page)
    tab_to(page, lambda tag, label, _: tag == "INPUT" and "Objectives" in label)
    page.keyboard.type("TALR")
    page.keyboard.press("Enter")
    settled(page)
    verdicts = page.locator(".st-key-verdicts")
    expect(verdicts.filter(has_text="TALR").first).to_be_visible(timeout=WAIT)
    page.keyboard.press("Escape")
    tab_to(page, lambda tag, label, _: tag == "INPUT" and "Your own weight" in label)
    page.keyboard.type("p**0.5")
    page.keyboard.press("Enter")
    expect(verdicts.filter(has_text="My formula").first).to_be_visible(timeout=WAIT)
    settled(page)
    tab_to(page, lambda _tag, _label, index: index != "")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(verdicts.filter(has_text="Token 2 of").first).to_be_visible(timeout=WAIT)
    settled(page)
    tab_to(page, lambda tag, label, _: tag == "BUTTON" and label.strip() == "Weights", key="Shift+Tab")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.get_by_text("The rest of the mass")).to_be_visible(timeout=WAIT)
