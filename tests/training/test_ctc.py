"""CTC that stays on its device, against torch's."""

import pytest
import torch
import torch.nn.functional as F

from regard.training.ctc import ctc_loss


def drawn(seed: int, rows: int = 7, places: int = 12, most: int = 5, size: int = 4):
    rng = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, places, size + 1, generator=rng) * 2
    labels = torch.randint(size, (rows, most), generator=rng)  # few entries: many repeat
    lengths = torch.randint(1, places + 1, (rows,), generator=rng)
    label_lengths = torch.randint(0, most + 1, (rows,), generator=rng)
    lengths[0], label_lengths[0] = places, most
    lengths[1], label_lengths[1] = 1, most  # cannot fit
    label_lengths[2] = 0  # nothing was said
    return logits, labels, lengths, label_lengths


@pytest.mark.parametrize("seed", range(20))
def test_it_is_torchs(seed):
    logits, labels, lengths, label_lengths = drawn(seed)
    weights = torch.rand(len(logits))
    results = []
    for own in (True, False):
        x = logits.clone().requires_grad_()
        logs = x.log_softmax(-1)
        if own:
            found = ctc_loss(logs, labels, lengths, label_lengths)
        else:
            found = F.ctc_loss(
                logs.transpose(0, 1), labels, lengths, label_lengths,
                blank=logits.shape[-1] - 1, reduction="none", zero_infinity=True,
            )  # fmt: skip
        (found * weights).sum().backward()
        results.append((found.detach(), x.grad))
    assert results[0][0][1] == 0, "what cannot fit teaches nothing"
    torch.testing.assert_close(results[0], results[1], atol=1e-5, rtol=1e-4)


def test_gradients_are_those_of_differences():
    logits, labels, lengths, label_lengths = drawn(3, rows=3, places=6, most=2)

    def loss(x):
        return ctc_loss(x.log_softmax(-1), labels, lengths, label_lengths)

    assert torch.autograd.gradcheck(loss, logits.double().requires_grad_())


def test_padding_changes_nothing():
    logits, labels, lengths, label_lengths = drawn(5)
    logs = logits.log_softmax(-1)
    wider = F.pad(logs, (0, 0, 0, 9), value=-3.0), F.pad(labels, (0, 4), value=1)
    alone = ctc_loss(logs, labels, lengths, label_lengths)
    torch.testing.assert_close(alone, ctc_loss(*wider, lengths, label_lengths))
