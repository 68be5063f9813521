r"""How well models meet quantities, or a picture: mean squared error, R^2, PSNR and SSIM, each with its spread.

All take predictions of M models and the N truths they share; see the functions for the shapes. They work in float64.

    mse    mean of (prediction - truth)^2
    r2     1 - mse / variance of the truth: 1 is perfect, 0 is no better than its mean
    psnr   -10 log10(mse / data_range^2), in decibel: the peak signal-to-noise ratio
    ssim   structural similarity, the mean over the picture of

           (2 m_x m_y + c_1)(2 s_xy + c_2) / ((m_x^2 + m_y^2 + c_1)(s_x^2 + s_y^2 + c_2)),

           with means m and sample covariances s of each 7 x 7 window that lies inside the picture, c_1 = (0.01
           data_range)^2 and c_2 = (0.03 data_range)^2: as in scikit-image with its defaults.

Predictions are taken as they are, also where they leave the range.

Reference of SSIM: Wang, Bovik, Sheikh and Simoncelli, Image quality assessment: from error visibility to structural
similarity, IEEE Transactions on Image Processing 2004.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, ParameterError
from .estimate import Score, score
from .inputs import as_number

_WINDOW = 7


def mse(predictions: Any, truth: Any, *, level: float = 0.95) -> Score:
    """The mean squared error of predictions (M, N, ...) against the truth (N, ...).

    >>> import softknee as sk, torch
    >>> sk.measure.mse(torch.tensor([[0.0, 2.0], [1.0, 1.0]]), [0.0, 1.0]).each
    (0.5, 0.5)
    """
    predicted, truth = _read(predictions, truth)
    return score(_errors(predicted, truth), larger_is_better=False, level=level, bounds=(0.0, math.inf))


def r2(predictions: Any, truth: Any, *, level: float = 0.95) -> Score:
    """1 - mse / variance, of predictions (M, N, ...) against the truth (N, ...).

    With several quantities the variance is that of each about its own mean, averaged, as the errors are. A truth that
    never varies gives NaN or minus infinity.

    >>> import softknee as sk, torch
    >>> sk.measure.r2(torch.tensor([[0.0, 1.0, 2.0], [1.0, 1.0, 1.0]]), [0.0, 1.0, 2.0]).each
    (1.0, 0.0)
    """
    predicted, truth = _read(predictions, truth)
    variance = (truth - truth.mean(dim=0)).square().mean()
    shares = 1 - _errors(predicted, truth) / variance
    return score(shares, larger_is_better=True, level=level, bounds=(-math.inf, 1.0))


def psnr(predictions: Any, truth: Any, *, data_range: float = 1.0, level: float = 0.95) -> Score:
    """The peak signal-to-noise ratio in decibel, of predictions (M, N, ...) against the truth (N, ...).

    >>> import softknee as sk, torch
    >>> round(sk.measure.psnr(torch.tensor([[0.1, 0.6]]), [0.0, 0.5]).value, 5)
    20.0
    """
    predicted, truth = _read(predictions, truth)
    _check_range(data_range)
    decibel = -10 * torch.log10(_errors(predicted, truth) / data_range**2)
    return score(decibel, larger_is_better=True, level=level)


def ssim(predictions: Any, truth: Any, *, data_range: float = 1.0, level: float = 0.95) -> Score:
    """The structural similarity of pictures (M, height, width) and the true one (height, width).

    >>> import softknee as sk, torch
    >>> picture = torch.linspace(0, 1, 81).reshape(9, 9)
    >>> sk.measure.ssim(torch.stack([picture, 1 - picture]), picture).each[0]
    1.0
    """
    predicted, truth = _read(predictions, truth)
    _check_range(data_range)
    if truth.dim() != 2 or min(truth.shape) < _WINDOW:
        raise InputError(
            f"ssim compares pictures of shape (height, width), each at least {_WINDOW}, and {tuple(truth.shape)} was "
            "given."
        )
    c1, c2 = (0.01 * data_range) ** 2, (0.03 * data_range) ** 2
    sample = _WINDOW**2 / (_WINDOW**2 - 1)
    mean_x, mean_y = _windows(predicted), _windows(truth.unsqueeze(0))
    variance_x = sample * (_windows(predicted.square()) - mean_x.square())
    variance_y = sample * (_windows(truth.square().unsqueeze(0)) - mean_y.square())
    covariance = sample * (_windows(predicted * truth) - mean_x * mean_y)
    similarity = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    similarity /= (mean_x.square() + mean_y.square() + c1) * (variance_x + variance_y + c2)
    return score(similarity.mean(dim=(1, 2)), larger_is_better=True, level=level, bounds=(-1.0, 1.0))


def _windows(pictures: Tensor) -> Tensor:
    """The mean of every window that lies inside, [M, height - 6, width - 6]."""
    return torch.nn.functional.avg_pool2d(pictures.unsqueeze(1), _WINDOW, stride=1).squeeze(1)


def _errors(predicted: Tensor, truth: Tensor) -> Tensor:
    return (predicted - truth).square().flatten(1).mean(dim=1)


# -- what may come in -------------------------------------------------------------------------------------


def _read(predictions: Any, truth: Any) -> tuple[Tensor, Tensor]:
    """Both in float64 on the device of the predictions, those with one dimension more in front."""
    try:
        predicted, known = (torch.as_tensor(values).detach() for values in (predictions, truth))
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"Predictions and truth must be tensors or arrays of numbers: {error}.") from error
    predicted = predicted.cpu() if predicted.device.type == "mps" else predicted  # Apple's devices have no float64
    real = not predicted.is_complex() and not known.is_complex()
    if not real or predicted.dim() < 2 or 0 in predicted.shape or predicted.shape[1:] != known.shape:
        raise InputError(
            f"Predictions are real numbers in the shape of the truth with the models in front, and "
            f"{tuple(predicted.shape)} was given for a truth of shape {tuple(known.shape)}."
        )
    predicted, known = predicted.double(), known.to(predicted.device).double()
    for name, values in (("predictions hold", predicted), ("truth holds", known)):
        if not bool(values.isfinite().all()):
            raise InputError(f"The {name} NaN or infinity; a model that diverged has no score: leave it out.")
    return predicted, known


def _check_range(data_range: float) -> None:
    # Its square is a float, too: whole numbers without end are none.
    if not isinstance(data_range, int | float) or not 0 < as_number(data_range) < 1e150:
        raise ParameterError(
            "data_range is how far apart the largest and the smallest value can be, a number above 0, and "
            f"{data_range!r} was given."
        )
