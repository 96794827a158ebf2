"""Tiny honest fakes: tokenizers trained in a moment, a seeded mini model, a model that knows what comes next."""

from tests.tiny.model import Oracle, mini_model
from tests.tiny.vocabularies import KINDS, characters, gpt2_like, llama2_like, smol_like, wordpiece_like

__all__ = ["KINDS", "Oracle", "characters", "gpt2_like", "llama2_like", "mini_model", "smol_like", "wordpiece_like"]
