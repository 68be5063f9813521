"""ImageNet from its folders: sizes, order, a part of it, and what is missing or damaged."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from data_files import IMAGENET_CLASSES as CLASSES
from data_files import write_imagenet
from softknee.app.data import data as data_command
from softknee.errors import DataError
from softknee.files import WriteError
from softknee.lab.data import imagenet
from softknee.lab.data.imagenet import find_bytes, load_imagenet, write_bytes
from softknee.lab.data.images import load_image_set
from softknee.lab.studies.examples import load_examples
from softknee.lab.studies.recipe import Data

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed; the extra 'vision' brings it")


def test_the_parts_the_classes_and_the_middle_of_each_picture(tmp_path):
    write_imagenet(tmp_path / "imagenet")
    result = load_imagenet(tmp_path, side=16)
    assert result.labels == CLASSES
    assert (result.train_images.shape, result.test_images.shape) == ((12, 3, 16, 16), (9, 3, 16, 16))
    assert result.train_images.dtype == torch.uint8
    for images, labels in ((result.train_images, result.train_labels), (result.test_images, result.test_labels)):
        red = images[:, 0].double().mean(dim=(1, 2))
        assert torch.equal((red / 40).floor().long(), labels)
    assert sorted(result.train_labels.tolist()) == [0] * 4 + [1] * 4 + [2] * 4
    assert result.train_labels.tolist() != sorted(result.train_labels.tolist())  # mixed
    # The middle: of 50 columns those from 10 to 40 of the picture that is 30 high, so from 51 to 204.
    lowest = result.train_images[:, 0].double().mean(dim=(1, 2)).argmin()
    green = result.train_images[lowest, 1].double().mean(dim=0)
    assert (green[0] + green[-1]) / 2 == pytest.approx(125, abs=6)
    assert 45 < green[0] < 65
    again = load_imagenet(tmp_path, side=16)
    assert torch.equal(again.train_images, result.train_images)


def test_a_part_is_the_first_of_the_same_order_and_nothing_else_is_decoded(tmp_path, monkeypatch):
    write_imagenet(tmp_path / "ILSVRC" / "Data" / "CLS-LOC")
    whole = load_imagenet(tmp_path, side=16)
    asked: list[Path] = []
    picture = imagenet._picture
    monkeypatch.setattr(imagenet, "_picture", lambda path, side: (asked.append(path), picture(path, side))[1])
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
    result = load_imagenet(tmp_path, side=8)
    grey = result.train_images[result.train_labels == 0]
    assert bool((grey == 90).all())


def test_what_is_missing_or_damaged_is_said(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"Looked for: 'imagenet/train' and 'imagenet/val'.*downloads nothing"):
        load_image_set("imagenet", tmp_path)
    folder = write_imagenet(tmp_path / "imagenet")
    monkeypatch.setattr(imagenet, "_AS_FLOATS", 10**9)
    with pytest.raises(
        DataError, match=r"The 21 pictures .* softknee data imagenet\. .* take a part .*: --set data\.limit=N"
    ):
        load_image_set("imagenet", tmp_path)
    monkeypatch.undo()
    path = folder / "val" / CLASSES[1] / f"{CLASSES[1]}_0.JPEG"
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DataError, match="is no JPEG or PNG picture that can be read"):
        load_imagenet(tmp_path, side=16)
    for item in path.parent.iterdir():
        item.unlink()
    with pytest.raises(DataError, match="has no pictures"):
        load_imagenet(tmp_path, side=16)
    path.parent.rmdir()
    with pytest.raises(DataError, match=f"no folder of the class '{CLASSES[1]}'"):
        load_imagenet(tmp_path, side=16)


# -- written as bytes ---------------------------------------------------------------------------------------


def test_the_bytes_are_the_decoded_pictures_and_what_is_said_of_them(tmp_path):
    write_imagenet(tmp_path / "imagenet")
    wanted = load_imagenet(tmp_path, side=16)
    said: list[str] = []
    actual = write_bytes(tmp_path, side=16, begin=said.append, report=said.append)
    assert said[0].startswith(f"21 pictures of 16 x 16 take 0.1 GB in '{tmp_path / 'imagenet-16'}'; that disk has ")
    assert said[1:] == ["val: 9 of 9 pictures", "train: 12 of 12 pictures"]
    for part, images, labels in (
        ("train", wanted.train_images, wanted.train_labels),
        ("val", wanted.test_images, wanted.test_labels),
    ):
        content = (tmp_path / "imagenet-16" / f"{part}.bytes").read_bytes()
        assert content == images.numpy().tobytes()
        assert actual.sha256[part] == hashlib.sha256(content).hexdigest()
        assert torch.equal(actual.labels[part], labels)
        x = actual.streamed(part, torch.tensor([3, 0]))
        assert torch.equal(x[:], wanted.ready(images[[3, 0]]))
    assert (actual.classes, actual.mean, actual.spread) == (CLASSES, wanted.mean, wanted.spread)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["imagenet", "imagenet-16"]


def test_a_part_comes_from_the_bytes_and_is_the_same(tmp_path, monkeypatch):
    write_imagenet(tmp_path / "imagenet")
    asked = Data(set="imagenet", validation=0.2, limit=3)
    decoded = load_examples(asked, folder=tmp_path)
    said = CliRunner().invoke(data_command, ["imagenet", "--data", str(tmp_path), "--limit", "6"])
    assert "6 pictures to train on and 6 to test with are in" in said.stdout
    assert "12 pictures of 224 x 224 take" in said.stderr
    assert load_imagenet(tmp_path, most=7).train_images.shape[0] == 7  # more than there are bytes of: decoded

    def refuse(*_: Any) -> Any:
        raise AssertionError("a picture was decoded")

    monkeypatch.setattr(imagenet, "_picture", refuse)
    again = load_examples(asked, folder=tmp_path)
    assert not again.on_disk
    assert again.fingerprint == decoded.fingerprint
    whole = load_examples(replace(asked, limit=None), folder=tmp_path)
    assert whole.on_disk
    assert (len(whole.train_x), len(whole.validation_x), len(whole.test_x)) == (5, 1, 6)
    assert whole.fingerprint == load_examples(replace(asked, limit=None), folder=tmp_path).fingerprint
    meta = tmp_path / "imagenet-224" / "meta.json"
    meta.write_text(meta.read_text().replace(find_bytes(tmp_path).sha256["val"], "0" * 64))
    assert whole.fingerprint != load_examples(replace(asked, limit=None), folder=tmp_path).fingerprint


def test_a_run_that_was_ended_leaves_nothing_that_looks_whole(tmp_path, monkeypatch):
    folder = write_imagenet(tmp_path / "imagenet")

    def stop(said: str) -> None:
        if said.startswith("train"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_bytes(tmp_path, side=16, report=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["imagenet"]
    broken = folder / "train" / CLASSES[1] / f"{CLASSES[1]}_0.JPEG"
    content = broken.read_bytes()
    broken.write_bytes(content[:300])
    with pytest.raises(DataError, match="is no JPEG or PNG picture"):
        write_bytes(tmp_path, side=16)
    broken.write_bytes(content)
    killed = tmp_path / ".imagenet-16.unfinished"
    killed.mkdir()
    (killed / "val.bytes").write_bytes(b"some")
    assert find_bytes(tmp_path, side=16) is None
    with pytest.raises(WriteError, match=r"unfinished' is of another run.* delete it"):
        write_bytes(tmp_path, side=16)
    assert (killed / "val.bytes").exists()
    (killed / "val.bytes").unlink()
    killed.rmdir()
    with monkeypatch.context() as patch:
        patch.setattr(imagenet, "_SPARE", 10**18)
        with pytest.raises(WriteError, match=r"take 1,000,000,000\.0 GB in .* GB left\. Make room;.*--limit N"):
            write_bytes(tmp_path, side=16)
    assert [item.name for item in tmp_path.iterdir()] == ["imagenet"]
    elsewhere = tmp_path / "other disk"
    elsewhere.mkdir()
    (tmp_path / "imagenet-16").symlink_to(elsewhere)
    assert write_bytes(tmp_path, side=16).folder == tmp_path / "imagenet-16"
    assert len(list(elsewhere.iterdir())) == 3
    with pytest.raises(WriteError, match="is there already"):
        write_bytes(tmp_path, side=16)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"format": "another"}, "not of the format"),
        ({"labels": {"train": [0] * 12, "val": [3] * 9}}, "labels of 'val' are not numbers of its classes"),
        ({"labels": {"train": [0] * 11, "val": [0] * 9}}, r"has 9,216 bytes, and its 11 pictures .* cut or changed"),
        ({"labels": {"train": "12"}}, "cannot be used"),
        ({"spread": [1.0, 0.0, 1.0]}, "mean and spread"),
        ({"limit": "x"}, "cannot be used"),
        (None, "cannot be used"),
    ],
    ids=["format", "label", "count", "text", "spread", "limit", "json"],
)
def test_changed_bytes_are_refused(changes, sentence, tmp_path):
    write_imagenet(tmp_path / "imagenet")
    folder = write_bytes(tmp_path, side=16).folder
    meta = folder / "meta.json"
    meta.write_text("{" if changes is None else json.dumps(json.loads(meta.read_text()) | changes))
    with pytest.raises(DataError, match=rf"{sentence}.* make it again with: softknee data imagenet"):
        find_bytes(tmp_path, side=16)


def test_a_cut_file_is_refused(tmp_path):
    write_imagenet(tmp_path / "imagenet")
    path = write_bytes(tmp_path, side=16).folder / "val.bytes"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"has 6,911 bytes, and its 9 pictures of 16 x 16 are 6,912: it was cut"):
        find_bytes(tmp_path, side=16)
    path.unlink()
    with pytest.raises(DataError, match="has 0 bytes"):
        load_imagenet(tmp_path, side=16)
