"""idx files: what is read is what was written, and nothing but a whole, expected file is read."""

import gzip
import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from idx_files import as_published, contents, idx_bytes, write
from softknee.errors import DataError, ParameterError
from softknee.lab.data import idx
from softknee.lab.data.files import data_folder, find_file
from softknee.lab.data.idx import SETS, read_idx
from softknee.lab.data.images import load_image_set

LAYOUTS: dict[str, Callable[[Path], None]] = {
    "folder of its own, gzipped": lambda root: write(root / "mnist"),
    "folder of its own": lambda root: write(root / "mnist", zipped=False),
    "torchvision, gzipped": lambda root: write(root / "MNIST" / "raw"),
    "torchvision": lambda root: write(root / "MNIST" / "raw", zipped=False),
    "the files themselves": lambda root: write(root),
    "with dots": lambda root: write(root / "mnist", zipped=False, dots=True),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_found_and_read(tmp_path: Path, layout: str) -> None:
    LAYOUTS[layout](tmp_path)
    data = load_image_set("mnist", tmp_path, check=False)
    written = contents()
    pixels = torch.tensor(list(written["train-images-idx3-ubyte"][16:]), dtype=torch.float64) / 255
    assert data.train_images.shape == (50, 1, 28, 28)
    assert data.test_images.shape == (20, 1, 28, 28)
    assert data.train_labels.tolist() == list(written["train-labels-idx1-ubyte"][8:])
    assert data.test_labels.tolist() == list(written["t10k-labels-idx1-ubyte"][8:])
    mean, spread = pixels.mean(), pixels.std(correction=0)
    assert data.mean == pytest.approx([255 * mean.item()], rel=1e-12)
    assert data.spread == pytest.approx([255 * spread.item()], rel=1e-12)
    expected = ((pixels - mean) / spread).float().reshape(50, 1, 28, 28)
    torch.testing.assert_close(data.ready(data.train_images), expected, rtol=1e-6, atol=1e-6)
    # The test images are standardised by the training images.
    other = torch.tensor(list(written["t10k-images-idx3-ubyte"][16:]), dtype=torch.float64) / 255
    ready = data.ready(data.test_images).flatten()
    torch.testing.assert_close(ready, ((other - mean) / spread).float(), rtol=1e-6, atol=1e-6)
    assert (data.train_images.dtype, data.train_labels.dtype) == (torch.uint8, torch.int64)


def test_torchvisions_layout_of_fashion(tmp_path: Path) -> None:
    write(tmp_path / "FashionMNIST" / "raw", zipped=False)
    assert load_image_set("fashion-mnist", tmp_path, check=False).name == "fashion-mnist"
    with pytest.raises(DataError, match=r"MNIST \(train images\) has no file"):
        load_image_set("mnist", tmp_path, check=False)


def test_torchvision_reads_the_same_numbers(tmp_path: Path) -> None:
    datasets = pytest.importorskip("torchvision.datasets", reason="torchvision is not installed")
    write(tmp_path / "MNIST" / "raw", zipped=False)
    theirs = datasets.MNIST(tmp_path, train=True)
    ours = load_image_set("mnist", tmp_path, check=False)
    assert torch.equal(theirs.targets, ours.train_labels)
    assert torch.equal(ours.train_images.squeeze(1), theirs.data)


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "mnist")
    monkeypatch.setenv("SOFTKNEE_DATA", str(tmp_path))
    assert len(load_image_set("mnist", check=False).train_labels) == 50


def test_an_unknown_checksum_is_an_error_unless_it_is_wanted(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(DataError, match=r"not the published file of MNIST \(train images\).*check=False"):
        load_image_set("mnist", tmp_path)


def test_the_checksum_is_that_of_the_bytes_after_decompression(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the checksums of our small files as the published ones, they load, and one changed pixel does not."""
    made = contents()
    monkeypatch.setitem(SETS, "mnist", as_published("mnist"))
    write(tmp_path / "mnist")
    write(tmp_path / "plain", zipped=False)
    assert torch.equal(
        load_image_set("mnist", tmp_path).train_images, load_image_set("mnist", tmp_path / "plain").train_images
    )
    altered = bytearray(made["t10k-images-idx3-ubyte"])
    altered[100] ^= 1
    write(tmp_path / "mnist", t10k_images=bytes(altered))
    with pytest.raises(DataError, match=r"not the published file of MNIST \(test images\)"):
        load_image_set("mnist", tmp_path)
    load_image_set("mnist", tmp_path, check=False)
    # A file of the set in the place of another is called by its name.
    write(tmp_path / "mnist", train_images=made["t10k-images-idx3-ubyte"])
    with pytest.raises(DataError, match=r"is MNIST \(test images\), where MNIST \(train images\) is expected"):
        load_image_set("mnist", tmp_path)


BROKEN = {
    "nothing in it": (b"", "begins with nothing"),
    "text": (b"<!DOCTYPE html>", "is no idx file"),
    "a magic number of no type": (b"\0\0\x07\x01" + b"\0\0\0\x01\x05", "is no idx file"),
    "no dimensions": (b"\0\0\x08\0", "is no idx file"),
    "floats": (struct.pack(">BBBBI", 0, 0, 13, 1, 1) + bytes(4), "holds floats"),
    "labels for images": (idx_bytes(torch.zeros(50)), r"holds labels \(1 dimension\), where images"),
    "two dimensions": (idx_bytes(torch.zeros(5, 10)), "numbers in 2 dimensions, where images"),
    "half a header": (struct.pack(">BBBBII", 0, 0, 8, 3, 50, 28), "ends within its header"),
    "too short": (idx_bytes(torch.zeros(50, 28, 28))[:-1], "claims 50 x 28 x 28 = 39,200 numbers and has 39,199"),
    "too long": (idx_bytes(torch.zeros(50, 28, 28)) + b"\0", "has more"),
    "a huge claim": (struct.pack(">BBBB3I", 0, 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1), "claims 4294967295 x"),
    "a large claim": (struct.pack(">BBBB3I", 0, 0, 8, 3, 2**20, 2**5, 2**5), r"has 0: it was cut short"),
    "no image": (struct.pack(">BBBB3I", 0, 0, 8, 3, 0, 28, 28), "must be at least 1"),
    "fewer images": (idx_bytes(torch.zeros(49, 28, 28)), "49 images and 50 labels"),
    "no spread": (idx_bytes(torch.full((50, 28, 28), 7)), "every training pixel of channel 0 is the same"),
    "other images": (idx_bytes(torch.arange(50 * 9).reshape(50, 3, 3) % 256), "differ in size"),
}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_file_is_a_sentence(tmp_path: Path, how: str, zipped: bool) -> None:
    data, sentence = BROKEN[how]
    write(tmp_path / "mnist", train_images=data, zipped=zipped)
    with pytest.raises(DataError, match=sentence):
        load_image_set("mnist", tmp_path, check=False)


def test_a_small_file_that_unpacks_to_much_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idx, "_MOST_BYTES", 2**20)
    file = tmp_path / "bomb.gz"
    file.write_bytes(gzip.compress(struct.pack(">BBBBI", 0, 0, 8, 1, 10) + bytes(2**26)))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="holds more than 1,048,576 bytes"):
            read_idx(file)
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_damage_of_the_compression_is_a_sentence(tmp_path: Path) -> None:
    whole = gzip.compress(idx_bytes(torch.arange(200)))
    file = tmp_path / "labels.gz"
    for damaged in (
        whole[:-9],
        whole[:-1],
        whole[:20],
        whole[:3],
        whole[:40] + b"\xff\xff" + whole[42:],
        whole[:-6] + b"\0" * 6,
    ):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=r"cannot be decompressed|cut short|ends within"):
            read_idx(file)
    file.write_bytes(whole)
    assert read_idx(file).tolist() == list(range(200))
    file.write_bytes(idx_bytes(torch.arange(3)))
    with pytest.raises(DataError, match=r"is called \.gz but not compressed so"):
        read_idx(file)


def test_what_is_no_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="could not be read"):
        read_idx(tmp_path / "nothing")
    with pytest.raises(DataError, match=r"could not be read|is not a file"):
        read_idx(tmp_path)
    with pytest.raises(DataError, match="could not be read"):
        read_idx("a\0b")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="is not a file"):
        read_idx(tmp_path / "pipe")


def test_labels_out_of_range_and_missing_files_are_sentences(tmp_path: Path) -> None:
    write(tmp_path / "mnist", t10k_labels=idx_bytes(torch.full((20,), 10)))
    with pytest.raises(DataError, match=r"mnist \(test\) has the label 10"):
        load_image_set("mnist", tmp_path, check=False)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError) as caught:
        load_image_set("mnist", tmp_path, check=False)
    for expected in ("MNIST (test labels)", "'mnist/t10k-labels-idx1-ubyte.gz'", "torchvision.datasets.MNIST"):
        assert expected in str(caught.value)
    with pytest.raises(ParameterError, match="Did you mean 'mnist'"):
        load_image_set("mnist2", tmp_path)


@pytest.mark.parametrize(("name", "mean", "spread"), [("mnist", 0.1307, 0.3081), ("fashion-mnist", 0.2860, 0.3530)])
def test_the_published_files_where_they_are(name: str, mean: float, spread: float) -> None:
    """The usual constants of both sets come out, and the checksums are those of the files."""
    try:
        find_file(data_folder(), idx._places(SETS[name], "train-images", 3), what=name, source="its authors")
    except DataError as error:
        pytest.skip(f"the published files are not here: {error}")
    data = load_image_set(name)
    assert (len(data.train_labels), len(data.test_labels)) == (60000, 10000)
    assert (round(data.mean[0] / 255, 4), round(data.spread[0] / 255, 4)) == (mean, spread)
    counts = data.test_labels.bincount()
    assert counts.sum() == 10000
    assert len(counts) == 10
    assert data.ready(data.train_images).double().mean().abs() < 1e-6
