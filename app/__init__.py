"""The Streamlit app: asks the library, draws the answer, computes nothing."""
