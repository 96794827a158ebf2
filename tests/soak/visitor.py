"""One browser context that does something at random again and again, and notes what goes wrong."""

from __future__ import annotations

import random
from collections.abc import Callable

from playwright.sync_api import Browser, Error, Page

TEXTS = (
    "The cat sat on the mat 42 times.",
    "3.14 is not 3,14 — and 2 + 2 = 4.",
    "나는 오늘 서울에 갔다. 🙂🙃",
    '<img src=x onerror="window.hit=1"> ![i](http://evil.invalid/a.png) </script> $x$ :red[e] \u202eabc\u202c',
    "A word. " * 120,
    "x",
    "",
)
SECTIONS = ("Weights", "Landscape", "Gates", "Gradient", "Noise check")
PATIENCE = 1_500


class Visitor:
    """Acts without waiting for the page to be ready; what is not there just now is left alone."""

    def __init__(self, browser: Browser, address: str, chance: random.Random) -> None:
        self.troubles: list[str] = []
        self._browser, self._address, self._chance = browser, address, chance
        self._page = self._open()
        self._acts: tuple[tuple[int, Callable[[], None]], ...] = (
            (5, self._type),
            (6, self._select),
            (3, self._view),
            (4, self._section),
            (6, self._turn_page),
            (3, self._tune),
            (2, self._stop),
            (1, self._page_again),
            (1, self._leave_and_return),
        )

    def act(self) -> str:
        """Do one thing; its name."""
        weights, acts = zip(*self._acts, strict=True)
        (act,) = self._chance.choices(acts, weights)
        try:
            act()
        except Error as error:
            # Not there, or gone meanwhile; a page that has crashed says so otherwise.
            if "crash" in error.message.lower():
                self.troubles.append(error.message)
        self._look()
        return str(act.__name__)

    def close(self) -> None:
        """Close the tab."""
        self._page.context.close()

    def _open(self) -> Page:
        page = self._browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: self.troubles.append(f"page error: {error}"))
        page.goto(self._address, timeout=60_000)
        return page

    def _look(self) -> None:
        if self._page.locator("[data-testid=stException]").count():
            self.troubles.append("the page shows an exception")
        if self._page.evaluate("window.hit") is not None:
            self.troubles.append("text was run")

    def _type(self) -> None:
        box = self._page.get_by_role("textbox", name="edit it")
        box.fill(self._chance.choice(TEXTS))
        box.press("Control+Enter")

    def _select(self) -> None:
        tokens = self._page.locator(".losscore-strip [data-i]")
        tokens.nth(self._chance.randrange(max(tokens.count(), 1))).click()

    def _view(self) -> None:
        self._page.get_by_role("radio", name=self._chance.choice(("Six panes", "Stripes", "bits", "nats"))).click()

    def _section(self) -> None:
        self._page.get_by_role("radio", name=self._chance.choice(SECTIONS)).click()

    def _turn_page(self) -> None:
        self._page.get_by_role("link", name=self._chance.choice(("Tokens", "Objectives", "Fine-tune"))).click()

    def _tune(self) -> None:
        steps = self._page.get_by_role("spinbutton", name="Steps")
        steps.fill(str(self._chance.choice((0, 1, 3, 200))))
        steps.press("Enter")
        self._page.get_by_role("button", name="Fine-tune", exact=True).click()

    def _stop(self) -> None:
        self._page.get_by_role("button", name="Stop").click()

    def _page_again(self) -> None:
        self._page.reload(timeout=60_000)

    def _leave_and_return(self) -> None:
        self.close()
        self._page = self._open()
