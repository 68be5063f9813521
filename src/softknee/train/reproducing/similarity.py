r"""How far apart the predictions of several models are, as a loss: smooth, and 0 where they agree.

    D = mean over n and m of sum_l ( s_{n,m}(l) - s_n(l) )^2,    s_n the mean of s_{n,m} over the models m,

of the probabilities s = P_{n,m}(l), of their log-odds s = log P_{n,m}(l) - log(1 - P_{n,m}(l)), or of the outputs as
they are, for regression. It is the square inside Delta_2 of `sk.measure.prediction_difference`; the root would have no
derivative where two models agree. Over pairs of models, D = (1/M^2) sum_{m<k} mean_n ||s_{n,m} - s_{n,k}||^2.

Reference: Shamir, Lin and Coviello, Smooth activations and reproducibility in deep networks, appendix B, which asks for
a loss on the prediction difference in probability or on the log-odds score, and leaves its form open.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ...errors import InputError, ParameterError, did_you_mean

KINDS = ("probabilities", "log_odds", "outputs")


def dissimilarity(outputs: Tensor, *, of: str = "probabilities") -> Tensor:
    """The mean squared distance of M models from their mean, one number.

    Args:
        outputs: of all models on the same examples, [M, n, L]: the logits of L labels; [M, n] or [M, n, 1]: the logit
            of the second of two labels.
        of: "probabilities", "log_odds", or "outputs" as they are.

    >>> import torch
    >>> from softknee.train import dissimilarity
    >>> logits = torch.tensor([[[0.0, 0.0]], [[0.0, 2.0]]])
    >>> p, q = logits.softmax(2)
    >>> torch.allclose(dissimilarity(logits), (p - q).square().sum() / 4)
    True
    >>> dissimilarity(logits, of="log_odds")  # log-odds of 0 and 0 against -2 and 2
    tensor(2.)
    """
    check_kind(of)
    if outputs.dim() < 2 or not outputs.is_floating_point() or outputs.numel() == 0:
        raise InputError(
            "The outputs to compare must be of shape [M, n] or [M, n, L], models first, and floating point; they are "
            f"{outputs.dtype} of shape {tuple(outputs.shape)}."
        )
    scores = scores_of(outputs, of)
    return (scores - scores.mean(0, keepdim=True)).square().flatten(2).sum(2).mean()


def check_kind(of: str) -> None:
    """Refuse a kind that is none."""
    if of not in KINDS:
        near = did_you_mean(of, KINDS) or f" Known are {', '.join(KINDS)}."
        raise ParameterError(f"There is no similarity of {of!r}.{near}")


def scores_of(outputs: Tensor, of: str) -> Tensor:
    """What is compared, [M, n, L]."""
    if of == "outputs":
        return outputs if outputs.dim() > 2 else outputs.unsqueeze(2)
    if outputs.dim() > 3:
        raise InputError(
            f"The outputs have shape {tuple(outputs.shape)}, and labels are compared along the third of three "
            "dimensions; reshape the output of the model to [examples, labels], or compare of='outputs'."
        )
    if outputs.dim() == 2 or outputs.shape[2] == 1:
        one = outputs.reshape(*outputs.shape[:2], 1)
        odds = torch.cat([-one, one], dim=2)
        return odds if of == "log_odds" else odds.sigmoid()
    return log_odds(outputs) if of == "log_odds" else outputs.softmax(dim=2)


def log_odds(logits: Tensor) -> Tensor:
    """log P(l) - log(1 - P(l)) along the last dimension, also where a probability is 1 to rounding.

    Of the most probable label it is its logit less the log-sum-exp of the others; of any other label P is at most 1/2,
    and log(1 - P) is harmless.
    """
    top = F.one_hot(logits.argmax(-1), logits.shape[-1]).bool()
    others = logits.masked_fill(top, -torch.inf).logsumexp(-1, keepdim=True)
    log_p = logits.log_softmax(-1)
    # Under the mask the branch is not used, but its gradient must be a number: 0 times infinity is none.
    rest = log_p - torch.log1p(-torch.where(top, -1.0, log_p).exp())
    return torch.where(top, logits - others, rest)
