"""ImageNet from its folders: sizes, order, a part of it, and what is missing or damaged."""

from pathlib import Path

import numpy as np
import pytest
import torch

from data_files import IMAGENET_CLASSES as CLASSES
from data_files import write_imagenet
from softknee.errors import DataError
from softknee.lab.data import imagenet_folder
from softknee.lab.data.imagenet_folder import load_imagenet
from softknee.lab.data.images import load_image_set
from softknee.lab.studies.examples import load_examples
from softknee.lab.studies.recipe import Data

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed; the extra 'vision' brings it")


def test_the_parts_the_classes_and_the_middle_of_each_picture(tmp_path):
    write_imagenet(tmp_path / "imagenet")
    found = load_imagenet(tmp_path, side=16)
    assert found.labels == CLASSES
    assert (found.train_images.shape, found.test_images.shape) == ((12, 3, 16, 16), (9, 3, 16, 16))
    assert found.train_images.dtype == torch.uint8
    for images, labels in ((found.train_images, found.train_labels), (found.test_images, found.test_labels)):
        red = images[:, 0].double().mean(dim=(1, 2))
        assert torch.equal((red / 40).floor().long(), labels)
    assert sorted(found.train_labels.tolist()) == [0] * 4 + [1] * 4 + [2] * 4
    assert found.train_labels.tolist() != sorted(found.train_labels.tolist())  # mixed
    # The middle: of 50 columns those from 10 to 40 of the picture that is 30 high, so from 51 to 204.
    lowest = found.train_images[:, 0].double().mean(dim=(1, 2)).argmin()
    green = found.train_images[lowest, 1].double().mean(dim=0)
    assert (green[0] + green[-1]) / 2 == pytest.approx(125, abs=6)
    assert 45 < green[0] < 65
    again = load_imagenet(tmp_path, side=16)
    assert torch.equal(again.train_images, found.train_images)


def test_a_part_is_the_first_of_the_same_order_and_nothing_else_is_decoded(tmp_path, monkeypatch):
    write_imagenet(tmp_path / "ILSVRC" / "Data" / "CLS-LOC")
    whole = load_imagenet(tmp_path, side=16)
    asked: list[Path] = []
    picture = imagenet_folder._picture
    monkeypatch.setattr(imagenet_folder, "_picture", lambda path, side: (asked.append(path), picture(path, side))[1])
    few = load_imagenet(tmp_path, most=5, side=16)
    assert torch.equal(few.train_images, whole.train_images[:5])
    assert (len(asked), len(few.labels)) == (10, 3)
    examples = load_examples(Data(set="imagenet", validation=0.2, limit=3), folder=tmp_path)
    assert (len(examples.train_x), len(examples.test_x), examples.classes) == (3, 3, 3)
    assert examples.input_shape == (3, 224, 224)


def test_grey_pictures_and_pngs_called_jpeg(tmp_path):
    write_imagenet(tmp_path / "imagenet-1k", train=1, val=1)
    path = tmp_path / "imagenet-1k" / "train" / CLASSES[0] / f"{CLASSES[0]}_0.JPEG"
    Image.fromarray(np.full((20, 20), 90, dtype=np.uint8)).save(path, format="PNG")
    found = load_imagenet(tmp_path, side=8)
    grey = found.train_images[found.train_labels == 0]
    assert bool((grey == 90).all())


def test_what_is_missing_or_damaged_is_said(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"Looked for: 'imagenet/train' and 'imagenet/val'.*downloads nothing"):
        load_image_set("imagenet", tmp_path)
    folder = write_imagenet(tmp_path / "imagenet")
    monkeypatch.setattr(imagenet_folder, "_AS_FLOATS", 10**9)
    with pytest.raises(DataError, match=r"The 21 pictures .* Take a part of them: --set data\.limit=N"):
        load_image_set("imagenet", tmp_path)
    monkeypatch.undo()
    path = folder / "val" / CLASSES[1] / f"{CLASSES[1]}_0.JPEG"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DataError, match="is no JPEG or PNG picture that can be read"):
        load_imagenet(tmp_path, side=16)
    for one in path.parent.iterdir():
        one.unlink()
    with pytest.raises(DataError, match="has no pictures"):
        load_imagenet(tmp_path, side=16)
    path.parent.rmdir()
    with pytest.raises(DataError, match=f"no folder of the class '{CLASSES[1]}'"):
        load_imagenet(tmp_path, side=16)
