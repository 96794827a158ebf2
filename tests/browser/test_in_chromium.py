"""The Tokens page as a person uses it."""

import itertools
import json
import re
from urllib.parse import urlparse

import pytest
from playwright.sync_api import Page, expect

LANES = ["p", "entropy", "rank", "ranktuner_scale", "deft_gate", "del_penalty"]
WAIT = 90_000


def ready(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.locator(".losscore-strip [data-i]").first).to_be_visible(timeout=WAIT)
    settled(page)


def settled(page: Page) -> None:
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=WAIT)


def type_text(page: Page, text: str) -> None:
    box = page.get_by_label("Text: edit it")
    box.fill(text)
    box.press("Control+Enter")
    first = text[:1]
    expect(page.locator('.losscore-strip [data-lane="p"] [data-i="0"]', has_text=first).first).to_be_visible(
        timeout=WAIT
    )
    # Streamlit keeps the strip of the text before until its run is over.
    expect(page.locator(".losscore-strip")).to_have_count(1, timeout=WAIT)
    settled(page)


def token(page: Page, index: int, lane: str = "p"):
    return page.locator(f'.losscore-strip [data-lane="{lane}"] [data-i="{index}"]')


def strict(text: str) -> dict:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} in JSON")

    return json.loads(text, parse_constant=refuse)


def test_open_type_select_switch_to_dark_and_download(server, page):
    ready(page, server)
    panes = page.locator(".losscore-strip [data-lane]")
    assert [panes.nth(i).get_attribute("data-lane") for i in range(panes.count())] == LANES

    type_text(page, "My cat weighs 4.25 kg.")
    for lane in LANES:
        assert "cat" in page.locator(f'.losscore-strip [data-lane="{lane}"]').inner_text()

    panel = page.locator(".st-key-token-panel")
    before = panel.inner_text()
    token(page, 6).click()
    expect(panel).to_contain_text("Token 7 of", timeout=WAIT)
    settled(page)
    assert panel.inner_text() != before
    expect(panel).to_contain_text("RankTuner scale")
    for lane in LANES:
        expect(token(page, 6, lane)).to_have_attribute("aria-selected", "true")

    light = page.locator("[data-testid=stApp]").evaluate("e => getComputedStyle(e).backgroundColor")
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(
        "light => getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor !== light", arg=light
    )
    expect(token(page, 6)).to_have_attribute("aria-selected", "true")

    with page.expect_download(timeout=WAIT) as download:
        page.get_by_role("button", name="Download JSON").click()
    sheet = strict(download.value.path().read_text("utf-8"))
    assert "".join(bytes.fromhex(row["bytes"]).decode() for row in sheet["tokens"]) == "My cat weighs 4.25 kg."
    assert sheet["tokens"][0]["p"] is None
    assert sheet["provenance"]["model"] == "smollm2-135m-instruct"
    digits = [row for row in sheet["tokens"] if row["digit"] is not None]
    assert [(row["digit"], row["place"]) for row in digits] == [(4, 0), (2, -1), (5, -2)]


def test_one_hover_shows_one_token_in_all_panes_with_its_six_values(server, page):
    ready(page, server)
    token(page, 3, "rank").hover()
    tip = page.locator(".losscore-strip .tip")
    expect(tip).to_be_visible()
    for title in ("Entropy", "Rank", "RankTuner scale", "DEFT gate", "DEL penalty"):
        expect(tip).to_contain_text(title)
    page.mouse.move(5, 5)
    expect(tip).to_be_hidden()


def test_the_main_job_by_keyboard_alone(server, page):
    ready(page, server)
    pane = page.get_by_role("listbox").first
    expect(pane).to_be_visible()
    page.locator('.losscore-strip [data-lane="p"] [data-i][tabindex="0"]').focus()
    start = int(page.evaluate(FOCUSED))
    page.keyboard.press("ArrowRight")
    assert int(page.evaluate(FOCUSED)) == start + 1
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator(".st-key-token-panel")).to_contain_text("Token 2 of", timeout=WAIT)


FOCUSED = """() => {
  let e = document.activeElement;
  while (e && e.shadowRoot && e.shadowRoot.activeElement) e = e.shadowRoot.activeElement;
  return e.getAttribute("data-i");
}"""


def test_a_link_restores_example_view_and_settings(server, page):
    ready(page, f"{server}/?example=Korean&view=Stripes&bos=Always&units=bits")
    expect(page.get_by_label("Text: edit it")).to_have_value(re.compile("오늘은"))
    expect(page.locator(".losscore-strip")).to_contain_text("<|im_start|>")
    expect(page.locator(".losscore-strip")).to_contain_text("bits")
    assert page.get_by_role("radio", name="Stripes").get_attribute("aria-checked") == "true"


def test_choosing_an_example_and_a_view_is_written_into_the_address(server, page):
    ready(page, server)
    page.get_by_role("radio", name="Stripes").click()
    page.get_by_label("Start from an example").click()
    page.get_by_role("option", name="Emoji").click()
    page.wait_for_url(re.compile(r"example=Emoji.*view=Stripes|view=Stripes.*example=Emoji"), timeout=WAIT)


@pytest.mark.parametrize("width", [360, 800, 1800])
@pytest.mark.parametrize("view", ["", "&view=Stripes"])
def test_nothing_sticks_out_sideways(server, page, width, view):
    page.set_viewport_size({"width": width, "height": 900})
    ready(page, f"{server}/?example=Blanks+and+odd+characters{view}")
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    strip = page.locator(".losscore-strip").bounding_box()
    assert strip is not None
    assert strip["x"] >= 0
    assert strip["x"] + strip["width"] <= width


HOSTILE = (
    "<img src=http://evil.invalid/a.png onerror=\"document.title='hit'\"> ![x](http://evil.invalid/b.png) "
    "<style>*{display:none}</style> <script>document.title='hit'</script> $x^2$ :red[e] [l](http://evil.invalid) "
    "\u202eevil \u202c ]]>"
)


def test_hostile_text_stays_text_and_no_request_leaves_this_machine(server, page):
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    ready(page, server)
    type_text(page, HOSTILE)
    for index in (1, 5, 12):
        token(page, index).click()
        expect(page.locator(".st-key-token-panel")).to_contain_text(f"Token {index + 1} of", timeout=WAIT)
        settled(page)
    assert "hit" not in page.title()
    assert page.locator("img[src*='evil'], a[href*='evil']").count() == 0
    outside = [url for url in asked if urlparse(url).hostname not in ("127.0.0.1", None)]
    assert outside == []


# Where the first piece of each token stands.
PLACES = """chips => chips.map(chip => { const at = chip.getClientRects()[0]; return [at.top, at.left]; })"""


def test_tokens_stand_in_their_order_whatever_their_script(server, page):
    ready(page, server)
    type_text(page, "abc שלום 123 def \u202eevil\u202c عدد ٣٤ x 'שָׁלוֹם' end")
    for label, view in (("Six panes", "panes"), ("Stripes", "stripes")):
        page.get_by_role("radio", name=label).click()
        expect(page.locator(f'.losscore-strip[data-view="{view}"]')).to_have_count(1, timeout=WAIT)
        expect(page.locator(".losscore-strip")).to_have_count(1, timeout=WAIT)
        settled(page)
        places = page.locator(".losscore-strip .pane").first.locator("[data-i]").evaluate_all(PLACES)
        assert len(places) > 30
        for index, (one, other) in enumerate(itertools.pairwise(places)):
            assert other[1] > one[1] or other[0] > one[0] + 10, (view, index)


@pytest.mark.parametrize(
    "text", ["a \n\n\t  x", "def f():\n    return '·⏎⟨◌⟩'\n", "😀 e\u0301 ‍ Ünï 日本", "\u0301 x\u202ey\u200b\xa0z"]
)
def test_what_is_copied_from_the_lanes_is_the_text(server, page, text):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    ready(page, server)
    box = page.get_by_label("Text: edit it")
    box.fill(text)
    box.press("Control+Enter")
    expect(page.locator('.losscore-strip [data-lane="p"]')).not_to_contain_text("pens", timeout=WAIT)
    expect(page.locator(".losscore-strip")).to_have_count(1, timeout=WAIT)
    settled(page)
    tokens = page.locator('.losscore-strip [data-lane="p"] [role="listbox"]')
    tokens.evaluate("""list => {
      const chosen = list.getRootNode().getSelection?.() ?? document.getSelection();
      chosen.selectAllChildren(list);
    }""")
    page.keyboard.press("Control+C")
    assert page.evaluate("navigator.clipboard.readText()") == text


def test_the_html_export_draws_by_itself_without_a_network(server, page, tmp_path, chromium):
    ready(page, server)
    with page.expect_download(timeout=WAIT) as download:
        page.get_by_role("button", name="Download HTML page").click()
    path = tmp_path / "lanes.html"
    download.value.save_as(path)
    context = chromium.new_context(offline=True)
    try:
        alone = context.new_page()
        errors: list[str] = []
        alone.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        alone.goto(path.as_uri())
        expect(alone.locator(".losscore-strip [data-lane]")).to_have_count(6)
        alone.locator('[data-lane="p"] [data-i="5"]').click()
        expect(alone.locator('[data-lane="rank"] [data-i="5"]')).to_have_attribute("aria-selected", "true")
        assert errors == []
    finally:
        context.close()


def test_a_selection_follows_to_the_objectives_page_and_back(server, page):
    ready(page, f"{server}/?example=Words+that+could+be+another+word")
    panel = page.locator(".st-key-token-panel")
    expect(panel).to_contain_text("·essentially", timeout=WAIT)
    page.get_by_role("link", name="Objectives").click()
    verdicts = page.locator(".st-key-verdicts")
    expect(verdicts).to_contain_text("·essentially", timeout=WAIT)
    settled(page)
    for words in ("lets it go", "pushes less", "pushes as cross-entropy does"):
        expect(verdicts).to_contain_text(words)
    page.locator('.losscore-strip [data-i="2"]').first.click()
    expect(verdicts).to_contain_text("Token 3 of", timeout=WAIT)
    settled(page)
    page.get_by_role("link", name="Tokens").click()
    expect(panel).to_contain_text("Token 3 of", timeout=WAIT)
    settled(page)
    for lane in LANES:
        expect(token(page, 2, lane)).to_have_attribute("aria-selected", "true")


@pytest.mark.parametrize("section", ["Weights", "Landscape", "Gates", "Gradient", "Noise+check"])
def test_the_objectives_page_fits_a_phone_and_raises_no_error(server, page, section):
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto(f"{server}/objectives?section={section}")
    expect(page.get_by_text("How to read it.").or_(page.get_by_text("Low is good")).first).to_be_visible(timeout=WAIT)
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    assert errors == []
