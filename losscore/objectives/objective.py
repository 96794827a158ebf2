"""An objective: a per-token loss, what it says of itself, and how losses combine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from losscore.errors import LosscoreError
from losscore.objectives.parameter import Parameter, parameters_of
from losscore.objectives.tokens import READABLE, Tokens

# Names of `READABLE`, or what gives them for the hyperparameters as they are set.
Reads = Sequence[str] | Callable[..., Sequence[str]]
Kind = Literal["baseline", "probability-dominant", "entropy-dominant", "calibrated", "gate", "digits", "own formula"]


@dataclass(frozen=True, eq=False)
class Term:
    """A loss for each token, or (`over` "digits") for each digit target; `values` are its hyperparameters.

    from_batch: hyperparameters whose 0 means that they are read off the batch, each with the function that does so.
    declared: what `function` reads of its tokens, beside digits and distribution; by default everything.
    """

    function: Callable[..., Tensor]
    over: Literal["tokens", "digits"]
    whole: bool
    parameters: Mapping[str, Parameter]
    values: Mapping[str, Any] = field(default_factory=dict)
    from_batch: Mapping[str, Callable[[Tokens], Tensor]] = field(default_factory=dict)
    declared: Reads = READABLE

    @property
    def reads(self) -> frozenset[str]:
        """What it reads as it is set. ValueError for a name that is not in `READABLE`."""
        settings = {name: one.default for name, one in self.parameters.items()} | dict(self.values)
        names = frozenset(self.declared(**settings) if callable(self.declared) else self.declared)
        if not names <= set(READABLE):
            raise ValueError(f"{self.function.__name__} can read {', '.join(READABLE)} only, not {sorted(names)}")
        return names

    @property
    def unsettled(self) -> list[str]:
        """The hyperparameters that are read off the batch."""
        return [name for name in self.from_batch if not self.values.get(name, self.parameters[name].default)]

    def __call__(self, tokens: Tokens) -> Tensor:
        return self.function(tokens, **self.values)


@dataclass(frozen=True, eq=False)
class Objective:
    """A loss for each target token: a weighted sum of terms, each averaged over the tokens it concerns.

    Call it with logits and labels as a drop-in loss; `per_token` takes `Tokens`. Objectives add up and take factors:
    `nll + 0.3 * ntl_was`.
    """

    name: str
    title: str
    idea: str
    formula: str
    kind: Kind
    paper: str
    terms: tuple[tuple[float, Term], ...]
    differs: str = ""

    @property
    def parameters(self) -> dict[str, Parameter]:
        """The hyperparameters of all terms by name; one that several terms have carries its term's number (`tau_2`)."""
        return {name: replace(self._term(at).parameters[own], name=name) for name, (at, own) in self._settings.items()}

    @property
    def values(self) -> dict[str, Any]:
        """Every hyperparameter as it is set."""
        return {
            name: self._term(at).values.get(own, self._term(at).parameters[own].default)
            for name, (at, own) in self._settings.items()
        }

    @property
    def _settings(self) -> dict[str, tuple[int, str]]:
        """Which term each hyperparameter belongs to, and its name there."""
        owners = Counter(own for _, term in self.terms for own in term.parameters)
        return {
            own if owners[own] == 1 else f"{own}_{at + 1}": (at, own)
            for at, (_, term) in enumerate(self.terms)
            for own in term.parameters
        }

    def _term(self, at: int) -> Term:
        return self.terms[at][1]

    @property
    def label(self) -> str:
        """The name with the hyperparameters that are not at their default, as `ranktuner:base=p`."""
        changed = [
            f"{name}={value:g}" if isinstance(value, float) else f"{name}={str(value).lower()}"
            for name, value in self.values.items()
            if value != self.parameters[name].default
        ]
        return f"{self.name}:{','.join(changed)}" if changed else self.name

    @property
    def heading(self) -> str:
        """The title; the label where hyperparameters tell two settings of one objective apart."""
        return self.title if self.label == self.name else self.label

    @property
    def needs_digits(self) -> bool:
        """Whether it reads the ten digit logits."""
        return any(term.over == "digits" for _, term in self.terms)

    @property
    def needs_distribution(self) -> bool:
        """Whether it looks at the whole distribution and so takes the slower path."""
        return any(term.whole for _, term in self.terms)

    @property
    def reads(self) -> frozenset[str]:
        """The columns of `Tokens` that it reads as it is set: the drop-in loss computes no others."""
        return frozenset[str]().union(*(term.reads for _, term in self.terms))

    @property
    def needs_batch(self) -> bool:
        """Whether a token's loss depends on which other tokens stand in its batch."""
        return any(term.unsettled for _, term in self.terms)

    def settled(self, tokens: Tokens) -> Objective:
        """The same objective with what it reads off a batch taken from `tokens`, so that parts of that batch can do."""
        terms = []
        for factor, term in self.terms:
            # A batch that is already certain may give 0, which would ask to read it off again.
            read = {name: max(float(term.from_batch[name](tokens)), 1e-12) for name in term.unsettled}
            terms.append((factor, replace(term, values={**term.values, **read})))
        return replace(self, terms=tuple(terms))

    def with_parameters(self, **values: Any) -> Objective:
        """The same objective with other hyperparameters.

        Raises LosscoreError for an unknown name or a value out of range.
        """
        known = self.parameters
        terms = list(self.terms)
        for name, value in values.items():
            if name not in known:
                raise LosscoreError(f"{self.title} has no parameter {name!r}; it has: {', '.join(known) or 'none'}.")
            at, own = self._settings[name]
            factor, term = terms[at]
            terms[at] = factor, replace(term, values={**term.values, own: known[name].check(value)})
        return replace(self, terms=tuple(terms))

    def per_token(self, tokens: Tokens) -> Float[Tensor, " tokens"]:
        """L_t for each of the T tokens, their mean being the objective.

        A term over N digits stands at its digits with the factor T / N (or `tokens.digits.share`), so that it enters
        the mean over the T tokens as its own mean over the N digits; without digits it adds nothing, and the result
        still hangs on `log_p`.
        """
        # Not 0 * log_p: that is NaN where log_p was not computed because nothing reads it.
        total = tokens.log_p.masked_fill(torch.ones_like(tokens.log_p, dtype=torch.bool), 0.0)
        for factor, term in self.terms:
            if term.over == "tokens":
                total = total + factor * term(tokens)
            elif tokens.digits is None:
                raise LosscoreError(f"{self.title} needs to know the digits: give digit_ids and places.")
            elif len(tokens.digits.rows):
                share = len(tokens) / len(tokens.digits.rows) if tokens.digits.share is None else tokens.digits.share
                total = total.index_add(0, tokens.digits.rows, (factor * share * term(tokens)).to(total.dtype))
        return total

    def __call__(
        self,
        logits: Float[Tensor, "batch time vocab"],
        labels: Int[Tensor, "batch time"],
        *,
        reduction: Literal["none", "mean", "sum"] = "mean",
        count: int | float | Tensor | None = None,
        digit_count: int | float | Tensor | None = None,
        ignore_index: int = -100,
        shift: bool = True,
        digit_ids: Sequence[int] | None = None,
        places: Float[Tensor, "batch time"] | None = None,
        embedding: Float[Tensor, "vocab width"] | None = None,
        **parameters: Any,
    ) -> Tensor:
        """The objective as a loss on logits and labels; see `losscore.objectives.drop_in.loss`."""
        from losscore.objectives.drop_in import loss

        return loss(
            self.with_parameters(**parameters),
            logits,
            labels,
            reduction=reduction,
            count=count,
            digit_count=digit_count,
            ignore_index=ignore_index,
            shift=shift,
            digit_ids=digit_ids,
            places=places,
            embedding=embedding,
        )

    def __add__(self, other: Objective) -> Objective:
        if not isinstance(other, Objective):
            return NotImplemented
        return replace(
            self,
            name=f"{self.name}+{other.name}",
            title=f"{self.title} + {other.title}",
            idea=f"{self.idea} Plus: {other.idea}",
            formula=f"{self.formula} + {other.formula}",
            kind=other.kind if self.kind == "baseline" else self.kind,
            paper=", ".join(dict.fromkeys(filter(None, (self.paper, other.paper)))),
            terms=self.terms + other.terms,
            differs=" ".join(filter(None, (self.differs, other.differs))),
        )

    def __mul__(self, factor: int | float) -> Objective:
        if not isinstance(factor, int | float):
            return NotImplemented
        several = len(self.terms) > 1
        return replace(
            self,
            name=f"{factor:g}*({self.name})" if several else f"{factor:g}*{self.name}",
            title=f"{factor:g} · ({self.title})" if several else f"{factor:g} · {self.title}",
            formula=rf"{factor:g}\,({self.formula})",
            terms=tuple((factor * own, term) for own, term in self.terms),
        )

    __rmul__ = __mul__


def objective(
    *,
    title: str,
    idea: str,
    formula: str,
    kind: Kind,
    paper: str = "",
    over: Literal["tokens", "digits"] = "tokens",
    whole: bool = False,
    differs: str = "",
    from_batch: Mapping[str, Callable[[Tokens], Tensor]] | None = None,
    reads: Reads = READABLE,
) -> Callable[[Callable[..., Tensor]], Objective]:
    """Turn a function of `Tokens` into an `Objective` of the function's name.

    The function's keyword-only arguments, annotated with `Between` or `OneOf`, become its hyperparameters. reads:
    the columns of `Tokens` that the function looks at (`tokens.p` is log_p), or a function of the hyperparameters that
    says so; a column that is not named may be NaN. from_batch: see `Term`.
    """

    def build(function: Callable[..., Tensor]) -> Objective:
        term = Term(function, over, whole, parameters_of(function), from_batch=from_batch or {}, declared=reads)
        return Objective(function.__name__, title, idea, formula, kind, paper, ((1.0, term),), differs)

    return build
