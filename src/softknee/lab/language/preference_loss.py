r"""Direct preference optimization: the loss of a batch of pairs, and what the papers report of it.

With pi the model, ref the model before it was trained on preferences, and a reply's log-probability the sum over its
tokens, the reward of a reply y to a prompt x and the loss of a pair (y_w preferred to y_l) are

    r(x, y) = beta (log pi(y|x) - log ref(y|x))            loss = -log sigmoid(r(x, y_w) - r(x, y_l))

Reference: Rafailov et al., Direct preference optimization (2023), equation 7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import InputError
from .pair_tokens import IGNORED, Batch


@dataclass(frozen=True, kw_only=True)
class PreferenceScores:
    """What the papers report of a set of pairs: evaluation loss, reward margin, reward accuracy, and the rewards.

    `preferred` of `pairs` are right; the accuracy is their share. An equal reward is not right.
    """

    loss: float
    margin: float
    accuracy: float
    chosen_reward: float
    rejected_reward: float
    pairs: int
    preferred: int

    def accuracy_interval(self) -> tuple[float, float]:
        """Wilson's interval of 95 %, which says how much a share of so few pairs can mean.

        >>> one = PreferenceScores(loss=0.66, margin=0.1, accuracy=159 / 256, chosen_reward=0, rejected_reward=0,
        ...                        pairs=256, preferred=159)
        >>> [round(end, 3) for end in one.accuracy_interval()]
        [0.56, 0.678]
        """
        z, n, p = 1.959963984540054, self.pairs, self.preferred / self.pairs
        middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def reply_log_probabilities(model: Any, batch: Batch) -> Tensor:
    """For each row the log-probability of its reply, summed over its tokens in float32."""
    on_gpu = batch.tokens.is_cuda
    with torch.autocast(batch.tokens.device.type, torch.bfloat16, enabled=on_gpu):
        logits = model(input_ids=batch.tokens, attention_mask=batch.real, use_cache=False).logits
    targets = batch.targets[:, 1:]
    asked = targets != IGNORED
    # Only the places that count are made float32: prompts and padding would take as much memory for nothing.
    losses = F.cross_entropy(logits[:, :-1][asked].float(), targets[asked], reduction="none")
    return -torch.zeros(targets.shape, device=losses.device).masked_scatter(asked, losses).sum(1)


def dpo_losses(policy: Tensor, reference: Tensor, *, beta: float) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of every pair and its two rewards, chosen and rejected.

    Args:
        policy, reference: log-probabilities of shape (2, pairs): of the chosen replies, and of the rejected ones.

    >>> same = torch.tensor([[-3.0], [-5.0]])
    >>> losses, chosen, rejected = dpo_losses(same, same, beta=0.1)
    >>> round(losses.item(), 4), chosen.item(), rejected.item()
    (0.6931, 0.0, 0.0)
    """
    if policy.shape != reference.shape or policy.ndim != 2 or len(policy) != 2:
        raise InputError(
            f"dpo_losses takes log-probabilities of shape (2, pairs) twice, and {tuple(policy.shape)} and "
            f"{tuple(reference.shape)} were given."
        )
    chosen, rejected = beta * (policy - reference)
    return -F.logsigmoid(chosen - rejected), chosen.detach(), rejected.detach()


def scores_of(policy: Tensor, reference: Tensor, *, beta: float) -> PreferenceScores:
    """The scores of log-probabilities of shape (2, pairs), with means in float64."""
    losses, chosen, rejected = dpo_losses(policy.double(), reference.double(), beta=beta)
    preferred = int((chosen > rejected).sum())
    return PreferenceScores(
        loss=losses.mean().item(),
        margin=(chosen - rejected).mean().item(),
        accuracy=preferred / len(losses),
        chosen_reward=chosen.mean().item(),
        rejected_reward=rejected.mean().item(),
        pairs=len(losses),
        preferred=preferred,
    )
