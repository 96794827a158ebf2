"""Text of unknown origin inside Markdown."""

from app.components.plain import plain


def test_every_ascii_punctuation_mark_is_escaped_and_nothing_else():
    assert plain("a $5 <b>*x*</b> `c` :red[e] 한") == r"a \$5 \<b\>\*x\*\<\/b\> \`c\` \:red\[e\] 한"
    assert plain("plain words 123") == "plain words 123"
