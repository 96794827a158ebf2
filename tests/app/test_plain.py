"""Text of unknown origin inside Markdown."""

from app.components.plain import plain


def test_every_ascii_punctuation_mark_is_escaped_and_nothing_else():
    assert plain("a $5 <b>*x*</b> `c` :red[e] 한") == r"a \$5 \<b\>\*x\*\<\/b\> \`c\` \:red\[e\] 한"
    assert plain("plain words 123") == "plain words 123"


def test_an_address_is_no_link():
    for address in ("http://e.x/a", "see https://e.x", "HTTP://E.X", "www.e.x", "a.b+c@e.x"):
        shown = plain(address).replace("\\", "")
        assert "\u2060" in shown
        assert shown.replace("\u2060", "") == address
    assert "\u2060" not in plain("p = 0.3 @ 5: a//b, wwwidth, https, x @y")
