"""Hostile text and strangers: nothing runs, nothing is fetched, nobody else is answered."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect

WAIT = 120_000
# One line, as the box for one's own formula and a model's name have room for one only.
MARKUP = (
    "<img src=x onerror=\"window.hit='img'\"> ![i](http://evil.invalid/a.png) <style>*{display:none}</style> "
    "</script><script>window.hit='script'</script> [l](http://evil.invalid/l) :red[e] :material/home: "
    "$\\href{javascript:window.hit='tex'}{x}$ `c` <svg onload=\"window.hit='svg'\"> {{7*7}} ${7*7} %s"
)
BIDI = "\u202eevil\u202c \u2066x\u2069 a\u200bb\u200d\ufeff \u0007"
ELSEWHERE = """elements => elements
  .map((element) => new URL(element.href || element.src || "", location))
  .filter(({ protocol, host }) => protocol === "javascript:" || (protocol.startsWith("http") && host !== location.host))
  .map(String)"""
HOSTILE = f"{MARKUP} {BIDI} 42\n# h\n| a | b |\n|---|---|\n> q\n- l"


@contextmanager
def watched(context: BrowserContext) -> Iterator[Page]:
    """A page that may ask this machine only and say nothing of an error; text must not become part of the page."""
    page = context.new_page()
    asked: list[str] = []
    errors: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: errors.append(dialog.message))
    yield page
    unharmed(page)
    assert [url for url in asked if urlparse(url).hostname not in ("127.0.0.1", "", None)] == []
    assert errors == []


def unharmed(page: Page) -> None:
    """Whatever has been typed until now is still nothing but text."""
    assert page.evaluate("window.hit") is None
    assert page.locator("a, img, iframe").evaluate_all(ELSEWHERE) == []
    assert page.locator("img[src='x'], img[src$='/x'], [onerror], [onload]").count() == 0
    assert page.get_by_text("What a fine-tuning").or_(page.get_by_role("link", name="Tokens")).first.is_visible()


def upload(count: int) -> Any:
    """A file of hostile pairs under a hostile name."""
    pair = json.dumps({"prompt": MARKUP, "response": HOSTILE})
    name = "![i](http:evil.invalid)<img src=x onerror=window.hit=1>.jsonl"
    return {"name": name, "mimeType": "text/plain", "buffer": f"{pair}\n".encode() * count}


def settled(page: Page) -> None:
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=WAIT)


def typed(page: Page, server: str, text: str) -> None:
    page.goto(f"{server}/?bos=Always")
    expect(page.locator(".losscore-strip [data-i]").first).to_be_visible(timeout=WAIT)
    settled(page)
    box = page.get_by_label("Text: edit it")
    box.fill(text)
    box.press("Control+Enter")
    expect(page.locator('.losscore-strip [data-lane="p"]')).to_contain_text("evil", timeout=WAIT)
    expect(page.locator(".losscore-strip")).to_have_count(1, timeout=WAIT)
    settled(page)


def test_hostile_text_is_only_text_on_every_page_and_in_the_export(
    server: str, chromium: Browser, tmp_path: Path
) -> None:
    context = chromium.new_context(viewport={"width": 1400, "height": 1000}, accept_downloads=True)
    with watched(context) as page:
        typed(page, server, HOSTILE)
        chips = page.locator('.losscore-strip [data-lane="p"] [data-i]')
        for index in (1, 9, 24, chips.count() - 1):
            chips.nth(index).hover()
            expect(page.locator(".losscore-strip .tip")).to_be_visible()
            chips.nth(index).click()
            expect(page.locator(".st-key-token-panel")).to_contain_text(f"Token {index + 1} of", timeout=WAIT)
            settled(page)
            unharmed(page)
        with page.expect_download(timeout=WAIT) as download:
            page.get_by_role("button", name="Download HTML page").click()
        exported = tmp_path / "lanes.html"
        download.value.save_as(exported)

        page.get_by_role("link", name="Objectives").click()
        for section in ("Landscape", "Gates", "Gradient", "Weights"):
            page.get_by_role("radio", name=section).click()
            expect(page.get_by_text("How to read it.").first).to_be_visible(timeout=WAIT)
            settled(page)
            unharmed(page)
        box = page.get_by_role("textbox", name="Your own weight")
        for formula, answer in (
            ("__import__('os').system('touch hit')", "numbers, names"),
            ("9**9**9", "no finite value"),
            ("().__class__.__bases__[0]", "numbers, names"),
            ("evil_name", "evil_name"),
            (MARKUP, "not complete or not arithmetic"),
        ):
            box.fill(formula)
            box.press("Enter")
            expect(page.get_by_role("alert").filter(has_text=answer)).to_be_visible(timeout=WAIT)
            settled(page)
            unharmed(page)
        box.fill("p # $ ![i](http://evil.invalid/a.png) <img src=x onerror=window.hit=1>")
        box.press("Enter")
        # For a moment Streamlit shows what was there before beside what comes.
        expect(page.locator(".st-key-verdicts").filter(has_text="My formula").first).to_be_visible(timeout=WAIT)
        settled(page)
        unharmed(page)
        box.fill("")
        box.press("Enter")
        page.get_by_role("radio", name="Noise check").click()
        page.locator("input[type=file]").set_input_files(upload(2))
        settled(page)
        page.get_by_role("button", name="Check", exact=True).click()
        expect(page.get_by_text("tokens are noise")).to_be_visible(timeout=WAIT)
        settled(page)
        unharmed(page)

        page.get_by_role("link", name="Fine-tune").click()
        button = page.get_by_role("button", name="Fine-tune", exact=True)
        expect(button).to_be_enabled(timeout=WAIT)
        steps = page.get_by_role("spinbutton", name="Steps")
        steps.fill("1")
        steps.press("Enter")
        settled(page)
        page.get_by_role("button", name="Settings").click()
        other = page.get_by_role("textbox", name="Other texts to look at")
        other.fill(MARKUP)
        other.press("Control+Enter")
        settled(page)
        page.keyboard.press("Escape")
        button.click()
        expect(page.get_by_text("Finished after 1 step.")).to_be_visible(timeout=WAIT)
        expect(page.get_by_text("Keep it")).to_be_visible(timeout=WAIT)
        settled(page)
        unharmed(page)
        page.get_by_role("radio", name="My own pairs").click()
        page.locator("input[type=file]").set_input_files(upload(2))
        settled(page)
        button.click()
        expect(page.locator("[class*=st-key-tune-example]")).to_be_visible(timeout=WAIT)
        expect(page.get_by_text("Finished after 1 step.")).to_be_visible(timeout=WAIT)
        settled(page)
        unharmed(page)

        alone = context.new_page()
        alone.goto(exported.as_uri())
        expect(alone.locator(".losscore-strip [data-lane]")).to_have_count(6)
        assert alone.evaluate("window.hit") is None
        assert alone.locator("img, a, svg, iframe").count() == 0
    context.close()


def test_a_model_or_pairs_with_a_hostile_name_are_refused_in_plain_words(server: str, chromium: Browser) -> None:
    context = chromium.new_context(viewport={"width": 1400, "height": 1000})
    with watched(context) as page:
        page.goto(f"{server}/?model=/nowhere/<img src=x onerror=window.hit=1>![i](http://evil.invalid/a.png)")
        expect(page.get_by_role("alert")).to_contain_text("There is no folder “/nowhere/<img", timeout=WAIT)
        settled(page)
        unharmed(page)
        page.goto(f"{server}/finetune")
        page.get_by_role("radio", name="My own pairs").click()
        page.locator("input[type=file]").set_input_files(upload(1) | {"buffer": b"{"})
        expect(page.get_by_text("line 1 is not JSON")).to_be_visible(timeout=WAIT)
        settled(page)
    context.close()


def test_a_file_over_five_megabytes_is_refused_and_the_limit_is_said_before(server: str, page: Page) -> None:
    page.goto(f"{server}/objectives?section=Noise+check")
    expect(page.get_by_text("5MB per file")).to_be_visible(timeout=WAIT)
    large = {"name": "large.txt", "mimeType": "text/plain", "buffer": b"x" * (5 * 1024 * 1024 + 1)}
    page.locator("input[type=file]").set_input_files(large)
    expect(page.get_by_text(re.compile("File must be 5(.0)?MB or smaller"))).to_be_visible(timeout=WAIT)


def test_the_server_itself_refuses_what_is_too_large_or_not_its_pages(server: str, page: Page) -> None:
    sent: list[Request] = []
    page.on("request", lambda request: sent.append(request) if request.method == "PUT" else None)
    page.goto(f"{server}/objectives?section=Noise+check")
    page.locator("input[type=file]").set_input_files(upload(1))
    expect(page.get_by_role("button", name=re.compile("^Remove .*onerror"))).to_be_visible(timeout=WAIT)
    (first,) = sent
    own = {name: value for name, value in first.all_headers().items() if "xsrf" in name}

    def again(size: int, headers: dict[str, str]) -> int:
        body = {"file": {"name": "a.jsonl", "mimeType": "text/plain", "buffer": b"x" * size}}
        return page.request.put(first.url, headers=headers, multipart=body).status

    assert own
    assert again(1000, own) == 204
    assert again(1000, {}) == 403
    assert again(5 * 1024 * 1024 + 1, own) == 413


def test_the_policy_holds_even_for_what_would_get_into_the_page(server: str, chromium: Browser) -> None:
    context = chromium.new_context()
    page = context.new_page()
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    page.goto(server)
    blocked = page.evaluate(
        """async () => {
          const blocked = [];
          document.addEventListener("securitypolicyviolation", (e) => blocked.push(e.effectiveDirective));
          const into = document.createElement("div");
          into.innerHTML = `<img src="http://evil.invalid/a.png"><iframe src="http://evil.invalid/f"></iframe>
            <style>@import url("http://evil.invalid/s.css");</style><object data="http://evil.invalid/o"></object>`;
          document.body.append(into);
          const script = document.createElement("script");
          script.src = "http://evil.invalid/s.js";
          document.body.append(script);
          await fetch("http://evil.invalid/f").catch(() => {});
          try { new WebSocket("ws://evil.invalid/"); } catch {}
          await new Promise((done) => setTimeout(done, 500));
          return blocked;
        }"""
    )
    assert {"img-src", "frame-src", "style-src-elem", "script-src-elem", "connect-src"} <= set(blocked)
    assert blocked.count("connect-src") == 2
    # Chromium reports a request that it then blocks; what is blocked gets no answer.
    assert (
        page.evaluate(
            "performance.getEntriesByType('resource').filter(e => e.name.includes('evil') && e.responseStatus).length"
        )
        == 0
    )
    context.close()


@pytest.mark.parametrize(
    ("host", "origin", "answered"),
    [
        ("127.0.0.1", None, True),
        ("localhost", None, True),
        ("127.0.0.1", "same", True),
        ("evil.invalid", None, False),
        ("evil.invalid", "same", False),
        ("127.0.0.1.evil.invalid", None, False),
        ("127.0.0.1", "http://evil.invalid", False),
        ("127.0.0.1", "null", False),
    ],
)
def test_the_web_socket_answers_this_machine_only(server: str, host: str, origin: str | None, answered: bool) -> None:
    port = urlparse(server).port
    origin = f"http://{host}:{port}" if origin == "same" else origin
    lines = [
        "GET /_stcore/stream HTTP/1.1",
        f"Host: {host}:{port}",
        *([f"Origin: {origin}"] if origin else []),
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ]
    with socket.create_connection(("127.0.0.1", port), timeout=30) as stream:
        stream.sendall("\r\n".join([*lines, "", ""]).encode())
        status = int(stream.recv(64).split()[1])
    assert (status == 101) is answered, status


@pytest.mark.parametrize("path", ["/", "/_stcore/health", "/_stcore/host-config", "/finetune"])
def test_every_page_refuses_a_strange_host(server: str, path: str) -> None:
    def status(host: str) -> int:
        port = urlparse(server).port
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", path, headers={"Host": f"{host}:{port}"})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    assert status("127.0.0.1") == status("localhost") == 200
    assert status("evil.invalid") == status("127.0.0.1.evil.invalid") == 400


def test_it_listens_on_this_machine_only(server: str) -> None:
    import psutil

    port = urlparse(server).port
    listening = [c.laddr.ip for c in psutil.net_connections("tcp") if c.status == "LISTEN" and c.laddr.port == port]
    assert listening == ["127.0.0.1"]


def test_a_broken_model_folder_is_refused_without_any_path_but_the_one_typed(
    server: str, page: Page, tmp_path: Path
) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}))
    (folder / "model.safetensors").write_bytes(b"\x08\x00\x00\x00\x00\x00\x00\x00{}      ")
    page.goto(f"{server}/?model={folder}")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("“broken”", timeout=WAIT)
    said = alert.inner_text()
    assert not re.search(r"(^|[\s“(])/\w", said), said
    assert "Traceback" not in said
    assert len(said) < 400
