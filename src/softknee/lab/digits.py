"""The handwritten digits that scikit-learn carries with it: 1,797 images of 8 x 8, no download."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import MissingToolError

# Half the images are kept for the test: with fewer, one image would move the accuracy by more than the
# activations differ.
_TEST_SHARE = 0.5
_SPLIT_SEED = 0


@dataclass(frozen=True, kw_only=True)
class Digits:
    """Images as rows of 64 numbers, standardised by `mean` and `spread` of the training half; labels are 0 to 9."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    mean: float  # of levels 0 to 16
    spread: float


def load_digits() -> Digits:
    """The data, always split in the same way, with the same share of every digit in both halves."""
    try:
        from sklearn import datasets, model_selection
    except ModuleNotFoundError as error:
        raise MissingToolError(
            "The digits come with scikit-learn, which is not installed. Install it with: pip install 'softknee[lab]'"
        ) from error
    images, labels = datasets.load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = model_selection.train_test_split(
        images, labels, test_size=_TEST_SHARE, random_state=_SPLIT_SEED, stratify=labels
    )
    train, test = torch.tensor(train_x, dtype=torch.float32), torch.tensor(test_x, dtype=torch.float32)
    # One scale for the whole image: some pixels are always blank, and have no spread of their own.
    # In float64, where sums of whole numbers are exact: the same floats on every machine, whatever order it sums in.
    mean, spread = train.double().mean().float(), train.double().std().float()
    return Digits(
        train_images=(train - mean) / spread,
        train_labels=torch.tensor(train_y, dtype=torch.int64),
        test_images=(test - mean) / spread,
        test_labels=torch.tensor(test_y, dtype=torch.int64),
        mean=float(mean),
        spread=float(spread),
    )
