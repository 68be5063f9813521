"""CIFAR from its binary version; what is missing, damaged or another's is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from convert_data import convert

from data_files import COUNTS, cifar_parts, publish_cifar, write_binary
from softknee.errors import DataError, ParameterError
from softknee.lab.data.image_set import ImageSet
from softknee.lab.data.images import load_image_set, load_split
from softknee.lab.studies.examples import load_examples
from softknee.lab.studies.recipe import Choice, Data, Model, Recipe, Seeds, Training
from softknee.lab.studies.running.run import run_trial
from softknee.lab.studies.trials import train_trials


def assert_same(found: ImageSet, classes: int) -> None:
    for part, (images, labels) in cifar_parts(classes).items():
        assert torch.equal(getattr(found, f"{part}_images"), torch.from_numpy(images).permute(0, 3, 1, 2))
        assert getattr(found, f"{part}_labels").tolist() == labels.tolist()
    assert len(found.labels) == classes


@pytest.mark.parametrize(("name", "classes"), [("cifar-10", 10), ("cifar-100", 100)])
def test_the_images_of_the_binary_version(name: str, classes: int, tmp_path: Path) -> None:
    write_binary(tmp_path, name)
    result = load_image_set(name, tmp_path, check=False)
    assert_same(result, classes)
    assert result.train_images.dtype == torch.uint8


def test_a_folder_of_its_own_holds_the_files_too(tmp_path: Path) -> None:
    write_binary(tmp_path / "cifar-10", "cifar-10")
    assert_same(load_image_set("cifar-10", tmp_path, check=False), 10)


def test_each_channel_is_scaled_by_its_own_mean_and_spread(tmp_path: Path) -> None:
    write_binary(tmp_path, "cifar-10")
    actual = load_image_set("cifar-10", tmp_path, check=False)
    wide = cifar_parts(10)["train"][0].astype(np.float64)
    np.testing.assert_allclose(actual.mean, wide.mean(axis=(0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(actual.spread, wide.std(axis=(0, 1, 2)), rtol=1e-12)
    wanted = (wide - wide.mean(axis=(0, 1, 2))) / wide.std(axis=(0, 1, 2))
    np.testing.assert_allclose(actual.ready(actual.train_images), wanted.transpose(0, 3, 1, 2), atol=1e-6)
    assert actual.train_images.dtype == torch.uint8  # and are unchanged


def test_one_changed_pixel_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = write_binary(tmp_path, "cifar-10")
    with pytest.raises(DataError, match=r"data_batch_1.bin' is not the published file.*check=False"):
        load_image_set("cifar-10", tmp_path)
    publish_cifar(monkeypatch, "cifar-10", place)
    assert_same(load_image_set("cifar-10", tmp_path), 10)
    content = bytearray((place / "data_batch_3.bin").read_bytes())
    content[-1] ^= 1
    (place / "data_batch_3.bin").write_bytes(content)
    with pytest.raises(DataError, match=r"data_batch_3.bin' is not the published file: its SHA-256 differs") as caught:
        load_examples(Data(set="cifar-10"), folder=tmp_path)
    assert "data.check: false" in str(caught.value)
    changed = load_examples(Data(set="cifar-10", check=False), folder=tmp_path)
    content[-1] ^= 1
    (place / "data_batch_3.bin").write_bytes(content)
    # What is trained on is told apart by its content, whether or not it was compared.
    assert changed.fingerprint != load_examples(Data(set="cifar-10"), folder=tmp_path).fingerprint


def test_a_missing_file_is_named_with_all_that_are_needed(tmp_path: Path) -> None:
    place = write_binary(tmp_path, "cifar-10")
    (place / "data_batch_4.bin").unlink()
    with pytest.raises(DataError) as caught:
        load_image_set("cifar-10", tmp_path, check=False)
    for said in ("no file 'data_batch_4.bin'", str(place), "data_batch_1.bin", "test_batch.bin", "cs.toronto.edu"):
        assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "folder", "python_folder"),
    [
        ("cifar-10", "cifar-10-batches-bin", "cifar-10-batches-py"),
        ("cifar-100", "cifar-100-binary", "cifar-100-python"),
    ],
)
def test_no_files_and_the_python_version(name: str, folder: str, python_folder: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load_image_set(name, tmp_path)
    for part in (f"'{folder}'", f"{name}-binary.tar.gz", str(tmp_path), "cs.toronto.edu", "SOFTKNEE_DATA"):
        assert part in str(caught.value)
    (tmp_path / python_folder).mkdir()
    with pytest.raises(DataError, match=rf"{python_folder}' is the python version.*pickles.*{name}-binary.tar.gz"):
        load_image_set(name, tmp_path)


def test_binary_files_of_another_length_or_set_are_refused(tmp_path: Path) -> None:
    place = write_binary(tmp_path, "cifar-10")
    whole = (place / "test_batch.bin").read_bytes()
    for content in (whole[:-1], b""):
        (place / "test_batch.bin").write_bytes(content)
        with pytest.raises(DataError, match="no whole records of 3,073 bytes"):
            load_image_set("cifar-10", tmp_path, check=False)
    (place / "test_batch.bin").write_bytes(bytes([10]) + whole[1:])
    with pytest.raises(DataError, match=r"\(test\) has the label 10; labels are 0 to 9"):
        load_image_set("cifar-10", tmp_path, check=False)


def test_sheets_of_images_are_converted_to_the_binary_version(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed; the extra 'vision' brings it")
    sheets = tmp_path / "own" / "cifar10" / "webp"
    sheets.mkdir(parents=True)
    for part, (images, labels) in cifar_parts(10).items():
        for number, sheet in enumerate(images.reshape(-1, 10 * 32, 32, 3)):
            image.fromarray(sheet).save(sheets / f"{part}_{number:03d}.webp", lossless=True)
        np.save(sheets / f"{part}_labels.npy", labels)
    convert(tmp_path / "own", tmp_path / "published")
    assert_same(load_image_set("cifar-10", tmp_path / "published", check=False), 10)


def test_other_names_are_refused() -> None:
    with pytest.raises(ParameterError, match="Did you mean 'cifar-10'"):
        load_image_set("cifar10")


# -- in a study ---------------------------------------------------------------------------------------------


def test_a_study_trains_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_cifar(monkeypatch, "cifar-100", write_binary(tmp_path, "cifar-100"))
    monkeypatch.setenv("SOFTKNEE_DATA", str(tmp_path))
    recipe = Recipe(
        name="c",
        data=Data(set="cifar-100", validation=0.1),
        model=Model(arguments={"hidden": [4]}),
        activations=(Choice(name="relu"),),
        training=Training(epochs=1, batch=20),
        seeds=Seeds(count=2),
        measures=(),
    )
    examples = load_examples(recipe.data, flat=True)
    assert examples.sentence().endswith("20 test examples of shape 3072, 100 classes")
    outcome = run_trial(train_trials(recipe, examples)[0], examples=examples)
    assert outcome is not None
    images = load_examples(recipe.data)
    assert images.input_shape == (3, 32, 32)
    assert torch.equal(images.train_x.flatten(1), examples.train_x)
    whole = load_image_set("cifar-100")
    both = torch.cat([images.train_y, images.validation_y])
    assert both.bincount(minlength=100).tolist() == whole.train_labels.bincount(minlength=100).tolist()
    assert torch.equal(images.test_x, whole.ready(whole.test_images))


def test_a_split_has_the_same_numbers(tmp_path: Path) -> None:
    write_binary(tmp_path, "cifar-10")
    whole, split = load_image_set("cifar-10", tmp_path, check=False), load_split("cifar-10", tmp_path, check=False)
    assert split.sentence() == "cifar-10: 48 training, 12 validation, 20 test"
    both = torch.cat([split.train_images, split.validation_images])
    assert sorted(map(tuple, both.flatten(1).tolist())) == sorted(
        map(tuple, whole.ready(whole.train_images).flatten(1).tolist())
    )
    assert load_split("cifar-10", tmp_path, check=False, flat=True).test_images.shape == (COUNTS["test"], 3072)
