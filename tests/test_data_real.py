"""The real files, where SOFTKNEE_DATA names a folder that has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from data_files import pillow
from softknee.lab.data.adult import load_adult
from softknee.lab.data.criteo import convert, load_criteo
from softknee.lab.data.images import load_image_set

FOLDER = os.environ.get("SOFTKNEE_DATA", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="SOFTKNEE_DATA is not set, so that there are no real files")


def need(*places: str) -> None:
    if not any(Path(FOLDER, place).exists() for place in places):
        pytest.skip(f"the data folder has none of {', '.join(places)}")


def test_cifar_10() -> None:
    need("cifar-10-batches-bin")
    result = load_image_set("cifar-10")  # compares the SHA-256
    assert result.train_labels.bincount().tolist() == [5000] * 10
    assert result.test_labels.bincount().tolist() == [1000] * 10
    # The numbers that are given everywhere for CIFAR-10.
    assert [round(item / 255, 4) for item in result.mean] == [0.4914, 0.4822, 0.4465]
    assert [round(value / 255, 4) for value in result.spread] == [0.247, 0.2435, 0.2616]


def test_cifar_100() -> None:
    need("cifar-100-binary")
    result = load_image_set("cifar-100")
    assert result.train_labels.bincount().tolist() == [500] * 100
    assert result.test_labels.bincount().tolist() == [100] * 100


def test_tiny_imagenet() -> None:
    need("tiny-imagenet", "tiny-imagenet-200")
    pillow()
    result = load_image_set("tiny-imagenet")
    classes = len(result.labels)
    assert result.train_labels.bincount().tolist() == [500] * classes
    assert result.test_labels.bincount().tolist() == [50] * classes
    assert result.train_images.shape == (500 * classes, 3, 64, 64)


def test_adult() -> None:
    need("adult")
    result = load_adult()  # compares the md5
    assert result.train_y.bincount().tolist() == [24_720, 7_841]
    assert result.test_y.bincount().tolist() == [12_435, 3_846]
    at = {name: number for number, name in enumerate(result.inputs)}
    missing = [int(result.train_x[:, at[f"{name}=?"]].sum()) for name in ("workclass", "occupation", "native-country")]
    assert missing == [1836, 1843, 583]
    assert abs(float(result.train_x[:, at["age"]].double().mean())) < 1e-6
    assert float(result.train_x[:, at["age"]].double().square().mean()) == pytest.approx(1.0, abs=1e-6)


def test_criteo(tmp_path: Path) -> None:
    need("criteo/dac8k_train.tsv.gz")
    result = load_criteo()
    assert [len(y) for _, y in result.values()] == [7200, 409, 391]
    shards = convert(Path(FOLDER, "criteo", "dac8k_train.tsv.gz"), tmp_path / "shards", rows=3000)
    assert shards.counts == (3000, 3000, 1200)
    labels = torch.cat([torch.from_numpy(block.labels) for block in shards.blocks(size=1000)])
    assert torch.equal(labels.long(), result["train"][1])
