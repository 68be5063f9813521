"""Pairs as numbers: prompt and reply cut to the papers' lengths, and batches of them.

Lengths as in Rafailov et al. (2023), 512 for both together and 256 for the prompt: where prompt and longer reply exceed
512, the prompt is cut to 256 (its end is kept for HH, its start for SHP), and if that is not enough, the replies are
cut to 512 - 256. Each reply ends with the sign that ends a text. Only the tokens of the reply count in a loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...errors import ParameterError
from .preferences import Pair

IGNORED = -100


@dataclass(frozen=True, kw_only=True)
class PairTokens:
    """The numbers of a prompt and of its two replies."""

    prompt: tuple[int, ...]
    chosen: tuple[int, ...]
    rejected: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Rows of tokens padded on the right, what of them is real, and the targets (-100 where nothing is asked)."""

    tokens: Tensor
    real: Tensor
    targets: Tensor

    def to(self, device: torch.device | str) -> Batch:
        return Batch(tokens=self.tokens.to(device), real=self.real.to(device), targets=self.targets.to(device))


def tokenize(pair: Pair, tokenizer: Any, *, length: int = 512, prompt_length: int = 256) -> PairTokens:
    """The numbers of a pair, cut to the lengths."""
    if not 0 < prompt_length < length:
        raise ParameterError(
            f"The length of a prompt must be positive and less than the whole length, and {prompt_length} and {length} "
            f"were given."
        )
    prompt = tokenizer.encode(pair.prompt, add_special_tokens=False)
    end = [tokenizer.eos_token_id]
    replies = [tokenizer.encode(one, add_special_tokens=False) + end for one in (pair.chosen, pair.rejected)]
    longest = max(map(len, replies))
    if len(prompt) + longest > length:
        prompt = prompt[-prompt_length:] if pair.kept == "end" else prompt[:prompt_length]
    if len(prompt) + longest > length:
        replies = [one[: length - prompt_length] for one in replies]
    return PairTokens(prompt=tuple(prompt), chosen=tuple(replies[0]), rejected=tuple(replies[1]))


def reply_batch(prompts: Sequence[Sequence[int]], replies: Sequence[Sequence[int]], *, padding: int) -> Batch:
    """Prompts followed by replies, a row each.

    >>> reply_batch([[1, 2], [3]], [[4], [5]], padding=0).targets.tolist()
    [[-100, -100, 4], [-100, 5, -100]]
    """
    wide = max(len(one) + len(other) for one, other in zip(prompts, replies, strict=True))
    tokens = torch.full((len(prompts), wide), padding)
    real = torch.zeros(len(prompts), wide, dtype=torch.long)
    targets = torch.full((len(prompts), wide), IGNORED)
    for row, (prompt, reply) in enumerate(zip(prompts, replies, strict=True)):
        both = len(prompt) + len(reply)
        tokens[row, :both] = torch.tensor([*prompt, *reply])
        real[row, :both] = 1
        targets[row, len(prompt) : both] = torch.tensor(list(reply))
    return Batch(tokens=tokens, real=real, targets=targets)


def pair_batch(pairs: Sequence[PairTokens], *, padding: int) -> Batch:
    """The chosen replies of all pairs, then the rejected ones, in one batch: both go through the model at once."""
    prompts = [one.prompt for one in pairs]
    return reply_batch(
        [*prompts, *prompts], [*(p.chosen for p in pairs), *(p.rejected for p in pairs)], padding=padding
    )


def chosen_batch(pairs: Sequence[PairTokens], *, padding: int) -> Batch:
    """The chosen replies alone, as supervised fine-tuning takes them."""
    return reply_batch([one.prompt for one in pairs], [one.chosen for one in pairs], padding=padding)
