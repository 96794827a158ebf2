"""The fused path against the drop-in losses on full logits: values and gradients, for every objective."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from losscore.fused import Fused, Targets, chunk_rows, fused, tokens_of
from losscore.stats import measure
from tests.objectives.family import BLANK, DIGIT_IDS, FAMILY, VOCABULARY

TOKENS, WIDTH = 23, 6
EXACT = 1e-9


class Head(nn.Module):
    """A linear head in float64 that notes how many rows of logits it was asked for at a time."""

    def __init__(self) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(7)
        self.weight = nn.Parameter(torch.randn(VOCABULARY, WIDTH, generator=random, dtype=torch.float64))
        self.asked: list[int] = []

    def forward(self, rows: Tensor) -> Tensor:
        self.asked.append(len(rows))
        return rows @ self.weight.T


def case(seed: int = 3) -> tuple[Tensor, Targets]:
    """Rows, and targets of three texts: some not trained on, a few digits, one of them not trained on either."""
    random = torch.Generator().manual_seed(seed)
    rows = torch.randn(TOKENS, WIDTH, generator=random, dtype=torch.float64)
    ids = torch.randint(15, VOCABULARY, (TOKENS,), generator=random)
    digit = torch.full((TOKENS,), -1)
    place = torch.full((TOKENS,), BLANK, dtype=torch.float64)
    for at, (value, where) in {2: (3, 1.0), 4: (0, 0.0), 9: (8, -1.0), 20: (5, 2.0)}.items():
        ids[at], digit[at], place[at] = DIGIT_IDS[value], value, where
    trained = torch.ones(TOKENS, dtype=torch.bool)
    trained[[0, 4, 11, 12]] = False
    sequence = torch.tensor([0] * 8 + [1] * 9 + [2] * 6)
    return rows, Targets(ids, sequence, trained, digit, place)


def plain(name: str, rows: Tensor, targets: Targets) -> tuple[float, Tensor, Tensor]:
    """Loss and gradients (rows, head) by autograd through all logits at once and the drop-in loss."""
    head, live = Head(), rows.clone().requires_grad_()
    logits = head(live)
    batch = [torch.nonzero(targets.sequence == text).squeeze(-1) for text in range(3)]
    longest = max(map(len, batch))
    padded = torch.zeros(3, longest, VOCABULARY, dtype=torch.float64)
    labels = torch.full((3, longest), -100)
    places = torch.full((3, longest), BLANK, dtype=torch.float64)
    for text, at in enumerate(batch):
        padded[text, : len(at)] = logits[at]
        labels[text, : len(at)] = torch.where(targets.trained[at], targets.ids[at], -100)
        places[text, : len(at)] = targets.place[at]
    loss = FAMILY[name](padded, labels, shift=False, digit_ids=DIGIT_IDS, places=places, embedding=head.weight)
    loss.backward()
    assert live.grad is not None
    assert head.weight.grad is not None
    return loss.item(), live.grad, head.weight.grad


def ours(
    name: str,
    rows: Tensor,
    targets: Targets,
    chunk: int | None = 5,
    head: Head | None = None,
    settle: bool = True,
    **options: object,
) -> tuple[Fused, Head]:
    head = head or Head()
    settled = FAMILY[name]
    if settled.needs_batch and settle:
        with torch.no_grad():
            settled = settled.settled(tokens_of(measure(head(rows), targets.ids), targets, VOCABULARY))
        head.asked.clear()
    counts = {"count": targets.count, "digit_count": targets.digit_count}
    done = fused(
        settled,
        rows,
        head,
        targets,
        vocabulary=VOCABULARY,
        digit_ids=DIGIT_IDS,
        embedding=head.weight,
        chunk=chunk,
        **(counts | options),  # type: ignore[arg-type]
    )
    return done, head


@pytest.mark.parametrize("name", FAMILY)
def test_loss_and_gradients_are_those_of_the_drop_in_loss_on_full_logits(name):
    rows, targets = case()
    loss, on_rows, on_head = plain(name, rows, targets)
    done, head = ours(name, rows, targets)
    assert done.loss == pytest.approx(loss, rel=1e-7, abs=1e-9)
    torch.testing.assert_close(done.gradient, on_rows, rtol=1e-7, atol=EXACT)
    torch.testing.assert_close(head.weight.grad, on_head, rtol=1e-7, atol=EXACT)


@pytest.mark.parametrize("name", ["deft", "del_loss", "emo"])
@pytest.mark.parametrize("frozen", [False, True])
def test_a_head_that_is_a_product_needs_no_graph(name, frozen):
    rows, targets = case()
    _, on_rows, on_head = plain(name, rows, targets)
    head = Head()
    head.weight.requires_grad_(not frozen)
    head.weight.grad = None if frozen else torch.ones_like(head.weight)  # what other groups have left there
    done, _ = ours(name, rows, targets, head=head, weight=head.weight)
    torch.testing.assert_close(done.gradient, on_rows, rtol=1e-7, atol=EXACT)
    if frozen:
        assert head.weight.grad is None
    else:
        torch.testing.assert_close(head.weight.grad, on_head + 1, rtol=1e-7, atol=EXACT)


def test_rows_that_are_logits_already_are_left_as_they_are():
    _, targets = case()
    logits = torch.randn(TOKENS, VOCABULARY, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    before = logits.clone()
    done = fused(
        FAMILY["nll"],
        logits,
        lambda rows: rows,
        targets,
        vocabulary=VOCABULARY,
        digit_ids=DIGIT_IDS,
        count=targets.count,
        digit_count=targets.digit_count,
    )
    assert torch.equal(logits, before)
    live = logits.clone().requires_grad_()
    labels = torch.where(targets.trained, targets.ids, -100)
    torch.nn.functional.cross_entropy(live, labels).backward()
    torch.testing.assert_close(done.gradient, live.grad, rtol=1e-7, atol=EXACT)


def test_a_batch_of_one_chunk_is_read_on_the_way():
    rows, targets = case()
    loss, on_rows, on_head = plain("talr", rows, targets)
    done, head = ours("talr", rows, targets, chunk=None, settle=False)
    assert head.asked == [TOKENS]
    assert done.loss == pytest.approx(loss, rel=1e-7)
    torch.testing.assert_close(done.gradient, on_rows, rtol=1e-7, atol=EXACT)
    torch.testing.assert_close(head.weight.grad, on_head, rtol=1e-7, atol=EXACT)


@pytest.mark.parametrize("name", ["nll", "del_loss", "talr", "emo", "mixture"])
@pytest.mark.parametrize("chunk", [1, 4, TOKENS, None])
def test_the_chunk_never_changes_a_value(name, chunk):
    rows, targets = case()
    base, base_head = ours(name, rows, targets, chunk=7)
    done, head = ours(name, rows, targets, chunk=chunk)
    assert done.loss == pytest.approx(base.loss, rel=1e-12)
    torch.testing.assert_close(done.gradient, base.gradient, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(head.weight.grad, base_head.weight.grad, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(done.statistics.log_p, base.statistics.log_p, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["nll", "deft", "del_loss", "ntl_was", "overtone"])
def test_parts_with_the_counts_of_the_whole_add_up_to_it(name):
    rows, targets = case()
    whole, _ = ours(name, rows, targets)
    counts = {"count": targets.count, "digit_count": targets.digit_count}
    # The digits are spread unevenly: the second part has one of three.
    parts = [ours(name, rows[at], targets[at], **counts)[0] for at in (slice(0, 14), slice(14, TOKENS))]
    assert sum(part.loss for part in parts) == pytest.approx(whole.loss, rel=1e-12)
    torch.testing.assert_close(torch.cat([part.gradient for part in parts]), whole.gradient)


def test_a_token_that_is_not_trained_on_has_statistics_and_no_gradient():
    rows, targets = case()
    done, _ = ours("nll", rows, targets)
    with torch.no_grad():
        expected = torch.log_softmax(Head()(rows), -1).gather(-1, targets.ids[:, None]).squeeze(-1)
    torch.testing.assert_close(done.statistics.log_p, expected)
    assert (done.gradient[~targets.trained] == 0).all()
    assert (done.gradient[targets.trained].abs().sum(-1) > 0).all()
    nothing, idle = ours("nll", rows[:1], targets[:1])
    assert nothing.loss == 0.0
    assert idle.weight.grad is None


def test_without_backward_nothing_is_learned_and_the_loss_is_the_same():
    rows, targets = case()
    done, head = ours("del_loss", rows, targets, backward=False)
    assert done.gradient is None
    assert head.weight.grad is None
    assert done.loss == ours("del_loss", rows, targets)[0].loss


def test_never_more_rows_of_logits_than_a_chunk():
    rows, targets = case()
    _, head = ours("deft", rows.repeat(20, 1), Targets.join([targets] * 20), chunk=50)
    assert max(head.asked) == 50
    assert sum(head.asked) == 20 * TOKENS
    assert chunk_rows(2048, 49_152) == 171  # 32 MiB of float32, a twelfth of all
    assert chunk_rows(60, 49_152) == 60
    assert chunk_rows(10, 10**9) == 1


def test_an_objective_that_reads_its_batch_in_several_chunks_must_be_settled_first():
    rows, targets = case()
    with pytest.raises(ValueError, match="settle"):
        ours("talr", rows, targets, chunk=7, settle=False)
    assert not FAMILY["talr_tau2"].needs_batch
    assert not FAMILY["nll"].needs_batch


def test_no_digit_set_means_no_digit_term():
    rows, targets = case()
    blank = Targets(targets.ids, targets.sequence, targets.trained, torch.full_like(targets.digit, -1), targets.place)
    head = Head()
    done = fused(
        FAMILY["del_loss"], rows, head, blank, vocabulary=VOCABULARY, digit_ids=(), count=blank.count, digit_count=0
    )
    assert done.loss == pytest.approx(ours("nll", rows, blank)[0].loss, rel=1e-12)
