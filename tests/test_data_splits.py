"""The parts of a data set: apart and always the same; the examples in the docstrings of data and networks run."""

import pytest
import torch

from deploy_networks import flat_digits
from softknee.errors import ParameterError
from softknee.lab.data.images import Split, load_split

pytest.importorskip("sklearn", reason="scikit-learn is not installed; it brings the digits")


@pytest.fixture(scope="module")
def digits() -> Split:
    return load_split("digits", flat=True)


def test_the_parts_of_a_data_set_are_apart_and_always_the_same(digits: Split) -> None:
    whole = flat_digits()
    rows = torch.cat([digits.train_images, digits.validation_images])
    assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, whole.train_images.tolist()))
    # Each image goes with its own label.
    pairs = zip(whole.train_images.tolist(), whole.train_labels.tolist(), strict=True)
    known = {tuple(image): label for image, label in pairs}
    assert [known[tuple(item)] for item in digits.validation_images.tolist()] == digits.validation_labels.tolist()
    assert [known[tuple(value)] for value in digits.train_images.tolist()] == digits.train_labels.tolist()
    assert torch.equal(digits.test_images, whole.test_images)
    assert torch.equal(load_split("digits", flat=True).validation_images, digits.validation_images)
    images = load_split("digits")
    assert images.train_images.shape[1:] == (1, 8, 8)
    assert torch.equal(images.train_images.flatten(1), digits.train_images)
    assert digits.to("meta").validation_labels.is_meta


def test_an_unknown_data_set_is_named() -> None:
    with pytest.raises(ParameterError, match="Did you mean 'mnist'"):
        load_split("mnis")
