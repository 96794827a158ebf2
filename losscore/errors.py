"""Errors meant for a person: one plain sentence that says what to do."""


class LosscoreError(Exception):
    """Base of every error whose text is fit to be shown as it is."""


class TextError(LosscoreError):
    """The text cannot be read or scored as given."""


class ModelError(LosscoreError):
    """The model cannot be found, loaded or run as asked."""


class Cancelled(LosscoreError):
    """The person asked a running computation to stop."""
