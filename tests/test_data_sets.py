"""Adult, Tiny-ImageNet and WikiText-2: read whole from their standard files, or refused with what is missing."""

from __future__ import annotations

import gzip
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch

from data_files import jpeg, tiny_imagenet_files, write_adult, write_tree
from softknee.errors import DataError
from softknee.lab.data.adult import COLUMNS, INPUTS, LABELS, load_adult
from softknee.lab.data.image_set import ImageSet
from softknee.lab.data.images import load_image_set
from softknee.lab.studies.examples import load_examples
from softknee.lab.studies.recipe import Data

# -- Adult --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [False, True])
def test_adult_as_a_plain_loop_reads_it(zipped: bool, tmp_path: Path) -> None:
    rows = write_adult(tmp_path / "adult")
    for file in (tmp_path / "adult").iterdir() if zipped else ():
        Path(f"{file}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    actual = load_adult(tmp_path, check=False)
    numbers = [name for name, values in COLUMNS.items() if not values]
    columns = {name: [int(row[list(COLUMNS).index(name)]) for row in rows["adult.data"]] for name in numbers}
    for part, name in (("train", "adult.data"), ("test", "adult.test")):
        x, y = getattr(actual, f"{part}_x"), getattr(actual, f"{part}_y")
        assert (x.dtype, x.shape) == (torch.float32, (len(rows[name]), 108))
        for at, row in enumerate(rows[name]):
            wanted = {f"{key}={cell}": 1.0 for key, cell in zip(COLUMNS, row, strict=False) if COLUMNS[key]}
            for key in numbers:
                cell = int(row[list(COLUMNS).index(key)])
                wanted[key] = (cell - np.mean(columns[key])) / np.std(columns[key])
            np.testing.assert_allclose(x[at], [wanted.get(key, 0.0) for key in INPUTS], atol=1e-6)
            assert LABELS[int(y[at])] == row[-1]


def test_a_missing_value_is_a_value() -> None:
    assert [name for name, values in COLUMNS.items() if "?" in values] == ["workclass", "occupation", "native-country"]
    assert len(INPUTS) == len(set(INPUTS)) == 108


def test_adult_in_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_adult(tmp_path / "adult", monkeypatch)
    result = load_examples(Data(set="adult", validation=0.25), folder=tmp_path)
    assert result.sentence() == "adult: 45 training, 15 validation, 20 test examples of shape 108, 2 classes"
    assert result.labels == ("<=50K", ">50K")
    assert torch.equal(result.test_x, load_adult(tmp_path).test_x)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (b"Private", b"Privat", r"workclass has no value 'Privat'. Did you mean 'Private'"),
        (b", <=50K", b", 50K", "income has no value '50K'"),
        (b", <=50K", b", 1, <=50K", "has a row of another length.*saw 16|has 16 columns"),
        (b"Male", b"\xff", "not text in UTF-8"),
        (b"Male, ", b"Male, -", "capital-gain is '-"),
    ],
)
def test_damaged_adult(old: bytes, new: bytes, sentence: str, tmp_path: Path) -> None:
    write_adult(tmp_path)
    content = (tmp_path / "adult.test").read_bytes()
    assert old in content
    row = content[: content.index(old)].count(b"\n")  # the first line is a remark
    (tmp_path / "adult.test").write_bytes(content.replace(old, new, 1))
    with pytest.raises(DataError, match=sentence) as caught:
        load_adult(tmp_path, check=False)
    assert f"row {row}:" in str(caught.value) or "UTF-8" in sentence or "length" in sentence
    with pytest.raises(DataError, match=r"not the published file: its md5"):
        load_adult(tmp_path)


def test_missing_adult_is_named(tmp_path: Path) -> None:
    write_adult(tmp_path)
    (tmp_path / "adult.test").unlink()
    with pytest.raises(DataError, match=r"Adult \(adult.test\).*'adult/adult.test'.*archive.ics.uci.edu"):
        load_adult(tmp_path, check=False)
    (tmp_path / "adult.test").write_text("|\n")
    with pytest.raises(DataError, match="has no rows"):
        load_adult(tmp_path, check=False)


# -- Tiny-ImageNet ------------------------------------------------------------------------------------------


def zipped(path: Path, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"tiny-imagenet-200/{name}", content)


def tarred(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, f"w:{path.suffix[1:]}") as archive:
        for name, content in reversed(files.items()):
            entry = tarfile.TarInfo(f"tiny-imagenet-200/{name}")
            entry.size = len(content)
            archive.addfile(entry, BytesIO(content))


def tiny(folder: Path) -> ImageSet:
    return load_image_set("tiny-imagenet", folder)


FORMS = {
    "folder": lambda root, files: write_tree(root / "tiny-imagenet-200", files),
    "zip": lambda root, files: zipped(root / "tiny-imagenet-200.zip", files),
    "tar.xz": lambda root, files: tarred(root / "tiny-imagenet-200.tar.xz", files),
    "tar.gz": lambda root, files: tarred(root / "tiny-imagenet-200.tar.gz", files),
}


@pytest.mark.parametrize("form", list(FORMS))
def test_tiny_imagenet_from_each_form(form: str, tmp_path: Path) -> None:
    FORMS[form](tmp_path, tiny_imagenet_files())
    result = tiny(tmp_path)
    assert result.labels == ("n01", "n02", "n03")
    assert result.train_labels.tolist() == [0] * 11 + [1] * 11 + [2] * 11
    assert result.test_labels.tolist() == [2, 0, 1, 2, 0, 1]
    # n01 was written second: its red is 80; green grows by 20 with the number, also from 9 to 10.
    centre = result.train_images[:11, :, 32, 32].int()
    np.testing.assert_allclose(centre, [(80, 20 * number, 0) for number in range(11)], atol=4)  # JPEG loses a little
    grey = result.test_images[:, :, 32, 32].int()
    np.testing.assert_allclose(grey, [[40 * number] * 3 for number in range(6)], atol=2)


def test_tiny_imagenet_in_a_study(tmp_path: Path) -> None:
    FORMS["folder"](tmp_path / "tiny-imagenet", tiny_imagenet_files())
    result = load_examples(Data(set="tiny-imagenet", validation=1 / 11), folder=tmp_path)
    assert result.sentence() == (
        "tiny-imagenet: 30 training, 3 validation, 6 test examples of shape 3 x 64 x 64, 3 classes"
    )


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"wnids.txt": b"n01\nn02\n"}, "class 'n03' in train, which is not in its wnids.txt"),
        ({"wnids.txt": b"n01\nn02\nn03\nn04\n"}, "no pictures in 'train/n04/images'"),
        ({"val/images/val_9.JPEG": jpeg(1)}, "'val/val_9.JPEG' is in images and not in val_annotations"),
        ({"val/images/val_2.JPEG": None}, "'val/val_2.JPEG' is in val_annotations.txt and not in images"),
        ({"val/val_annotations.txt": None}, "has no 'val/val_annotations.txt'"),
        ({"val/val_annotations.txt": b"val_0.JPEG n01\n"}, "line 1 of val_annotations"),
        ({"train/n01/images/n01_3.JPEG": jpeg(1, side=32)}, "n01_3.JPEG' has 32 x 32 pixels"),
        ({"train/n01/images/n01_3.JPEG": b"GIF89a"}, "no JPEG picture"),
        ({"train/n01/images/n01_3.JPEG": b"\0" * (2**20 + 1)}, "a file of 1,048,577 bytes"),
    ],
    ids=lambda one: one[-30:] if isinstance(one, str) else "",
)
def test_damaged_tiny_imagenet(changes: dict[str, bytes | None], sentence: str, tmp_path: Path) -> None:
    files = {name: content for name, content in {**tiny_imagenet_files(), **changes}.items() if content is not None}
    FORMS["folder"](tmp_path, files)
    with pytest.raises(DataError, match=sentence):
        tiny(tmp_path)


def test_a_damaged_archive_and_none(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        tiny(tmp_path)
    for said in ("tiny-imagenet-200/wnids.txt", "tiny-imagenet-200.zip", str(tmp_path), "cs231n.stanford.edu"):
        assert said in str(caught.value)
    for name in ("tiny-imagenet-200.zip", "tiny-imagenet-200.tar.xz"):
        FORMS[name.partition(".")[2]](tmp_path, tiny_imagenet_files())
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(DataError, match="It is damaged"):
            tiny(tmp_path)
        (tmp_path / name).unlink()


# -- examples of the documentation --------------------------------------------------------------------------
