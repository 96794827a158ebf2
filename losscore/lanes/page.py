"""The lanes as one self-contained HTML page, and as a frame for a notebook."""

from __future__ import annotations

import html
import json
from importlib.resources import files
from typing import Any

from losscore.lanes.payload import Table, strip_payload

_STYLE = """
:root { color-scheme: light dark; --st-text-color: #31333f; --st-background-color: #fff;
  --st-secondary-background-color: #f0f2f6; --st-border-color: #d6d9e0; --st-primary-color: #0b66c3;
  --st-font: system-ui, sans-serif; --st-code-font: ui-monospace, monospace; }
@media (prefers-color-scheme: dark) { :root { --st-text-color: #fafafa; --st-background-color: #0e1117;
  --st-secondary-background-color: #262730; --st-border-color: #41444e; --st-primary-color: #6cb4ff; } }
body { margin: 0 auto; padding: 1rem; max-width: 1500px; background: var(--st-background-color);
  color: var(--st-text-color); font-family: var(--st-font); }
h1 { font-size: 1.25rem; } h2 { font-size: 1rem; margin-top: 2rem; } .line { margin: 0.2rem 0 1rem; }
table { border-collapse: collapse; font-size: 0.85rem; } td, th { padding: 0.15rem 1rem 0.15rem 0; text-align: left;
  vertical-align: top; overflow-wrap: anywhere; font-weight: normal; } th { opacity: 0.75; white-space: nowrap; }
""".strip()


def strip_script() -> str:
    """The strip's JavaScript module."""
    return files("losscore.lanes").joinpath("strip.js").read_text("utf-8")


def strip_style() -> str:
    """The strip's style sheet."""
    return files("losscore.lanes").joinpath("strip.css").read_text("utf-8")


def lanes_page(sheet: Table, *, summary: str, full: bool = True) -> str:
    """The page; `summary` is one line of plain text, `full` adds how the sheet was made."""
    made = ""
    if full:
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(_plain(value))}</td></tr>"
            for name, value in sheet.provenance.items()
        )
        made = f"<h2>How this was made</h2><table>{rows}</table>"
    title = "<h1>Token weights · losscore</h1>" if full else ""
    # The page may run its own script and style, and nothing else; it can fetch nothing.
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>Token weights · losscore</title><style>{_STYLE}
{strip_style()}</style></head><body>{title}
<p class="line">{html.escape(summary)}</p><div id="strip"></div>{made}
<script type="application/json" id="losscore-data">{_script_json(strip_payload(sheet))}</script>
<script type="application/json" id="losscore-provenance">{_script_json(dict(sheet.provenance))}</script>
<script type="module">{strip_script()}
mount(document.getElementById("strip"), JSON.parse(document.getElementById("losscore-data").textContent), {{}});
</script></body></html>
"""


def lanes_frame(sheet: Table, *, summary: str) -> str:
    """The page inside a frame of its own, so that a notebook's styles and the strip's leave each other alone."""
    page = html.escape(lanes_page(sheet, summary=summary, full=False), quote=True)
    return (
        f'<iframe srcdoc="{page}" sandbox="allow-scripts" title="Token lanes" '
        'style="width:100%;height:640px;border:0"></iframe>'
    )


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _script_json(value: Any) -> str:
    """JSON that cannot close the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
