"""Navigation and page settings. Start it with `losscore app`."""

import sys
from pathlib import Path

import streamlit as st

# Streamlit puts this file's own folder on the path; the package `app` stands one level up.
_ROOT = str(Path(__file__).resolve().parent.parent)
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

st.set_page_config(page_title="losscore", page_icon="🔎", layout="wide")
# Streamlit leaves a sixth of a laptop's screen blank above the first line, and draws captions, chosen segments and a
# slider's value with less contrast to the page than 4.5 : 1.
st.html(
    """<style>
.stMainBlockContainer { padding-top: 3.5rem; }
[data-testid="stCaptionContainer"] { color: inherit; opacity: 0.8; }
[data-variant="segmented_control"][aria-checked="true"], [data-variant="segmented_control"][aria-checked="true"] *,
[data-testid="stSliderThumbValue"], [data-testid="stSliderThumbValue"] * { color: inherit !important; }
</style>"""
)
pages = [
    st.Page("views/tokens.py", title="Tokens", default=True),
    st.Page("views/objectives.py", title="Objectives"),
    st.Page("views/finetune.py", title="Fine-tune"),
]
st.navigation(pages, position="top").run()
