"""Whether a loaded model reads plain text at all: damaged weights load without a word and give wrong numbers."""

import math

import torch

from losscore.models.model import Model

SENTENCE = "The people of the town said that it was a good day to go down to the river."
# A model that knows nothing is at ln V; one whose weights are scrambled is sure of the wrong tokens.
_FAR = 2.0


@torch.no_grad()
def doubts(model: Model) -> tuple[str, ...]:
    """A note where the mean NLL of a plain English sentence lies more than 2 nats above ln V, a blind guess's.

    Nothing is said where the sentence has fewer than two tokens, or ids that the model does not know.
    """
    ids = list(model.encoder.encode(SENTENCE).ids[: model.context])
    if len(ids) < 2 or max(ids) >= model.vocabulary:
        return ()
    logits = torch.cat([model.head(rows) for _, rows in model.blocks(ids[:-1])])
    targets = torch.tensor(ids[1:], device=logits.device)
    nll, blind = torch.nn.functional.cross_entropy(logits, targets).item(), math.log(model.vocabulary)
    if nll <= blind + _FAR:
        return ()
    return (
        f"A plain English sentence costs this model {nll:.3g} nats a token, and a blind guess {blind:.3g}: "
        "its weights may be damaged, or made for another kind of text.",
    )
