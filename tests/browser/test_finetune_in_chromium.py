"""The Fine-tune page as a person uses it: press, watch, stop, go elsewhere meanwhile, start again."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

WAIT = 120_000


def opened(page: Page, server: str, text: str = "The cat sat on the mat 42") -> None:
    page.goto(server)
    expect(page.locator(".losscore-strip [data-i]").first).to_be_visible(timeout=WAIT)
    box = page.get_by_label("Text: edit it")
    box.fill(text)
    box.press("Control+Enter")
    # Streamlit keeps the strip of the text before until its run is over.
    expect(lane(page, "p").filter(has_text=text.split()[1][:6]).first).to_be_visible(timeout=WAIT)
    expect(lane(page, "p")).to_have_count(1, timeout=WAIT)
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=WAIT)
    page.get_by_role("link", name="Fine-tune").click()
    expect(button(page)).to_be_enabled(timeout=WAIT)


def button(page: Page) -> Locator:
    return page.get_by_role("button", name="Fine-tune", exact=True)


def lane(page: Page, name: str) -> Locator:
    return page.locator(f'.losscore-strip [data-lane="{name}"]')


def p_of(page: Page, pane: str, index: int) -> float:
    """The place of a token on p's scale, 0 to 100, as it is painted."""
    return float(lane(page, pane).locator(f'[data-i="{index}"]').evaluate("e => e.style.getPropertyValue('--f')"))


def step(page: Page) -> int:
    found = re.search(r"Step (\d+) of", page.get_by_text(re.compile(r"Step \d+ of")).first.inner_text())
    assert found
    return int(found[1])


def set_steps(page: Page, steps: int) -> None:
    box = page.get_by_role("spinbutton", name="Steps")
    box.fill(str(steps))
    box.press("Enter")
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=WAIT)


def test_press_watch_p_rise_stop_and_start_again(server: str, page: Page) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    opened(page, server)
    set_steps(page, 200)
    button(page).click()
    expect(lane(page, "now-0").locator("[data-i]").first).to_be_visible(timeout=WAIT)
    expect(button(page)).to_be_disabled()
    # The strip is the same one all along: it is painted anew, not built anew.
    lane(page, "now-0").evaluate("e => { e.dataset.mark = 'kept'; }")
    lane(page, "now-0").locator('[data-i="3"]').click()
    expect(page.locator(".st-key-tune-token")).to_contain_text("Token 4 of", timeout=WAIT)
    before = p_of(page, "before", 3)
    page.wait_for_function(
        """before => [...document.querySelectorAll('*')].some(e => {
          const now = e.shadowRoot?.querySelector('[data-lane="now-0"] [data-i="3"]');
          return now && Number(now.style.getPropertyValue('--f')) > before;
        })""",
        arg=before,
        timeout=WAIT,
    )
    assert lane(page, "now-0").get_attribute("data-mark") == "kept"
    assert lane(page, "now-0").locator('[data-i="3"]').get_attribute("aria-selected") == "true"
    assert p_of(page, "before", 3) == before
    page.get_by_role("button", name="Stop").click()
    ended = page.get_by_text(re.compile(r"Stopped after \d+ steps?\."))
    expect(ended).to_be_visible(timeout=WAIT)
    expect(page.get_by_text("Mean p over the targets rose from")).to_be_visible(timeout=WAIT)
    expect(button(page)).to_be_enabled(timeout=WAIT)
    assert p_of(page, "now-0", 3) > before

    set_steps(page, 1)
    button(page).click()
    expect(page.get_by_text("Finished after 1 step.")).to_be_visible(timeout=WAIT)
    expect(ended).to_have_count(0)
    assert errors == []


def test_other_pages_work_meanwhile_and_coming_back_finds_the_run(server: str, page: Page) -> None:
    opened(page, server)
    set_steps(page, 500)
    button(page).click()
    expect(page.get_by_text(re.compile(r"Step \d+ of 500"))).to_be_visible(timeout=WAIT)
    page.get_by_role("link", name="Tokens").click()
    box = page.get_by_label("Text: edit it")
    expect(box).to_be_visible(timeout=WAIT)
    box.fill("Another text meanwhile")
    box.press("Control+Enter")
    expect(lane(page, "p").filter(has_text="meanwhile").first).to_be_visible(timeout=WAIT)
    expect(lane(page, "p")).to_have_count(1, timeout=WAIT)
    page.get_by_role("link", name="Fine-tune").click()
    expect(page.get_by_text(re.compile(r"Step [1-9]\d* of 500"))).to_be_visible(timeout=WAIT)
    expect(lane(page, "now-0")).to_contain_text("mat", timeout=WAIT)
    first = step(page)
    expect(page.get_by_text(re.compile(r"Step \d+ of 500"))).not_to_contain_text(f"Step {first} of", timeout=WAIT)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text(re.compile(r"Stopped after \d+ steps?\."))).to_be_visible(timeout=WAIT)


def test_a_second_tab_waits_its_turn_and_a_closed_tab_makes_room(server: str, page: Page) -> None:
    opened(page, server)
    set_steps(page, 900)
    button(page).click()
    expect(page.get_by_text(re.compile(r"Step \d+ of 900"))).to_be_visible(timeout=WAIT)
    other = page.context.new_page()
    opened(other, server, "A second text 7")
    set_steps(other, 1)
    button(other).click()
    expect(other.get_by_text("Waiting: another fine-tune runs on")).to_contain_text("you are next", timeout=WAIT)
    page.close()
    expect(other.get_by_text("Finished after 1 step.")).to_be_visible(timeout=WAIT)


@pytest.mark.parametrize("width", [360, 1400])
def test_nothing_sticks_out_sideways_and_no_request_leaves_this_machine(server: str, page: Page, width: int) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.set_viewport_size({"width": 1400, "height": 900})
    opened(page, server, "![x](http://evil.invalid/b.png) <img src=http://evil.invalid/a.png> 42")
    page.set_viewport_size({"width": width, "height": 900})
    set_steps(page, 1)
    button(page).click()
    expect(page.get_by_text("Finished after 1 step.")).to_be_visible(timeout=WAIT)
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=WAIT)
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    assert page.locator("img[src*='evil']").count() == 0
    assert [url for url in asked if "evil" in url] == []
