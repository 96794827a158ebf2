"""The columns of a sheet: their names in every export, their kinds, what they mean."""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """`kind` is one of int, float, bool, text; `meaning` one line for a reader."""

    kind: str
    meaning: str


COLUMNS: dict[str, Column] = {
    "position": Column("int", "row number, from 0"),
    "id": Column("int", "the token's id"),
    "token": Column("text", "the token as shown, blanks and invisible characters marked"),
    "bytes": Column("text", "its exact bytes, hexadecimal; empty for an added BOS"),
    "start": Column("int", "first character of the input that it covers"),
    "end": Column("int", "one past its last character"),
    "is_target": Column("bool", "whether it is trained on: predicted, and its last byte in the response"),
    "log_p": Column("float", "log p of the token, nats"),
    "p": Column("float", "its probability"),
    "entropy": Column("float", "H = −Σ p_v log p_v of the distribution, nats"),
    "rank": Column("int", "R = #{v : p_v ≥ p}; 1 is best, ties count against the token"),
    "expected_rank": Column("float", "E[R] = Σ i p₍ᵢ₎, probabilities sorted downwards"),
    "concentration": Column("float", "C = Σ p_v²"),
    "ranktuner_indicator": Column("float", "I = 2^(f(R) − f(E[R])), f(x) = 1/log₂(x+1)"),
    "ranktuner_scale": Column("float", "S = 1/I"),
    "ranktuner_scale_from_bounds": Column("float", "(p s(H))^−K, s(H) = 2^H/4 + 1; not to be trusted below 2 bits"),
    "deft_alpha": Column("float", "DEFT's focus index a = C"),
    "deft_gate": Column("float", "DEFT's trust gate p^a"),
    "cayley_alpha": Column("float", "a = (1 − √(1−p)) / (1 + √(1−p))"),
    "cayley_gate": Column("float", "p^a with Cayley's a"),
    "digit": Column("int", "0-9 where the token is exactly one digit of the digit set"),
    "place": Column("int", "0 units, 1 tens, −1 tenths"),
    "place_weight": Column("float", "u = 2(i+1) for place i ≥ 0, 1.02^(i−1) below"),
    "p_given_digit": Column("float", "the digit's probability among the ten digits"),
    "digit_entropy": Column("float", "entropy among the ten digits, nats"),
    "del_criterion": Column("float", "Σ_d p̂_d BCE(σ(z_d), [d = digit])"),
    "del_penalty": Column("float", "(0.01/10) · criterion · u"),
}
