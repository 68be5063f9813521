"""The data of a study: read whole, split by class, scaled by the training part, refused with a line and a column."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from softknee.errors import DataError
from softknee.lab.data.images import load_split
from softknee.lab.studies.examples import Examples, load_examples, recipe_examples
from softknee.lab.studies.recipe import Data, Model, Recipe, split

PARTS = ("train", "validation", "test")


def every(found: Examples, axis: str) -> torch.Tensor:
    return torch.cat([getattr(found, f"{part}_{axis}") for part in PARTS])


def table(folder: Path, rows: list[str], *, header: str = "a,b,kind,label", name: str = "data.csv") -> Path:
    (folder / name).write_text("\n".join([header, *rows]) + "\n")
    return folder / name


def read(folder: Path, name: str = "data.csv", **more: Any) -> Examples:
    return load_examples(Data(file=name, **more), base=folder)


# -- splitting ----------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=2, max_size=80), st.floats(0.05, 0.9), st.integers(0, 5))
def test_every_example_is_in_one_part_and_every_class_has_its_share(labels: list[int], share: float, seed: int) -> None:
    y = torch.tensor(labels)
    kept, rest = split(y, share=share, seed=seed)
    assert sorted([*kept.tolist(), *rest.tolist()]) == list(range(len(labels)))
    for label in set(labels):
        count, got = labels.count(label), int((y[kept] == label).sum())
        assert got <= count - 1  # training has seen every class
        assert abs(got - share * count) < 1 or got == count - 1
    if all(labels.count(item) * (1 - share) >= 2 for item in set(labels)):
        # The nearest whole number; of a half, either, for the last bit of a sum depends on its order.
        assert abs(len(kept) - sum(labels.count(value) * share for value in set(labels))) < 0.5 + 1e-9


def test_the_seed_decides() -> None:
    y = torch.arange(60) % 3
    first, again, other = (split(y, share=0.3, seed=seed)[0] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert set(first.tolist()) != set(other.tolist())


def test_digits() -> None:
    whole = load_split("digits", flat=True)
    result = load_examples(Data(set="digits", validation=0.25), flat=True)
    assert (result.task, result.classes, result.input_shape, result.outputs) == ("classification", 10, (64,), 10)
    assert torch.equal(result.test_x, whole.test_images)
    rows = {tuple(row) for row in torch.cat([whole.train_images, whole.validation_images]).tolist()}
    assert {tuple(row) for row in torch.cat([result.train_x, result.validation_x]).tolist()} == rows
    for item in range(10):
        count = int((result.train_y == item).sum() + (result.validation_y == item).sum())
        assert abs(int((result.validation_y == item).sum()) - 0.25 * count) < 1
    assert len({result.fingerprint, load_examples(Data(set="digits")).fingerprint}) == 2


def test_the_model_decides_how_images_come() -> None:
    shapes = [
        recipe_examples(Recipe(name="t", data=Data(set="digits", flat=flat), model=Model(build=build))).input_shape
        for build, flat in (("mlp", None), ("cnn", None), ("a:b", None), ("a:b", True), ("mlp", False))
    ]
    assert shapes == [(64,), (1, 8, 8), (1, 8, 8), (64,), (1, 8, 8)]


# -- tables -------------------------------------------------------------------------------------------------


def rows_of(count: int = 60) -> list[str]:
    return [f"{i},{i * i / 7:.3f},{'xyz'[i % 3]},{'no' if i % 2 else 'yes'}" for i in range(count)]


def test_a_table_is_read_whole(tmp_path: Path) -> None:
    table(tmp_path, rows_of())
    actual = read(tmp_path, standardise=False)
    assert (actual.classes, actual.labels, actual.name) == (2, ("no", "yes"), "data.csv")
    x, y = every(actual, "x"), every(actual, "y")
    order = x[:, 0].argsort()
    x, y = x[order], y[order]
    numbers = torch.arange(60)
    wanted = torch.stack([numbers, *(numbers % 3 == kind for kind in range(3))], dim=1).float()
    assert torch.equal(x[:, [0, 2, 3, 4]], wanted)
    np.testing.assert_allclose(x[:, 1], np.round(np.arange(60) ** 2 / 7, 3), rtol=1e-6)
    assert torch.equal(y, (numbers % 2 == 0).long())
    assert [len(getattr(actual, f"{part}_y")) for part in PARTS] == [38, 10, 12]
    assert actual.sentence() == "data.csv: 38 training, 10 validation, 12 test examples of shape 5, 2 classes"


def test_codes_of_which_one_is_a_word_are_text(tmp_path: Path) -> None:
    table(tmp_path, [*(f"{i % 3},{i % 2}" for i in range(40)), "other,1"], header="code,label")
    assert read(tmp_path).input_shape == (4,)


def test_scaled_by_the_training_part_alone(tmp_path: Path) -> None:
    table(tmp_path, [f"{i},5,{'p' if i % 2 else 'q'},{i % 3}" for i in range(50)])
    plain, scaled = (read(tmp_path, standardise=item) for item in (False, True))
    wide = plain.train_x.double().numpy()
    mean, spread = wide.mean(axis=0), wide.std(axis=0)
    spread[1] = 1.0  # a constant has no spread of its own
    for part in PARTS:
        wanted = (getattr(plain, f"{part}_x").double().numpy() - mean) / spread
        np.testing.assert_allclose(getattr(scaled, f"{part}_x"), wanted, atol=1e-6)
    assert plain.input_shape == (3,)  # text of two values is one column


def test_a_quantity_is_predicted_in_its_own_spread(tmp_path: Path) -> None:
    table(tmp_path, [f"{i},{i}.5" for i in range(40)], header="a,price")
    result, plain = read(tmp_path), read(tmp_path, standardise=False)
    assert (result.task, result.classes, result.outputs) == ("regression", 0, 1)
    assert result.train_y.shape == (len(result.train_x), 1)
    np.testing.assert_allclose(result.train_y.mean(), 0, atol=1e-6)
    np.testing.assert_allclose(result.train_y.square().mean(), 1, rtol=1e-5)
    assert torch.equal(plain.test_y[:, 0], plain.test_x[:, 0] + 0.5)


@pytest.mark.parametrize(
    ("cells", "task", "classes"),
    [
        (["1", "2", "1", "2"], "auto", 2),
        (["-1", "+1", "-1", "+1"], "auto", 2),
        (["1.0", "2.0", "1.0", "2.0"], "auto", 0),
        (["1.0", "2.0", "1.0", "2.0"], "classification", 2),
        (["1", "2", "1", "2"], "regression", 0),
        (["a", "1", "a", "1"], "auto", 2),
        (["true", "false", "true", "false"], "auto", 2),
    ],
)
def test_what_a_target_is(cells: list[str], task: str, classes: int, tmp_path: Path) -> None:
    table(tmp_path, [f"{i},{cells[i % 4]}" for i in range(40)], header="a,t")
    assert read(tmp_path, task=task).classes == classes


def test_many_whole_numbers_are_asked_about(tmp_path: Path) -> None:
    table(tmp_path, [f"{i},{i // 2}" for i in range(100)], header="a,age")
    with pytest.raises(DataError, match="50 different whole numbers in 100 rows"):
        read(tmp_path)
    assert read(tmp_path, task="regression").outputs == 1
    assert read(tmp_path, task="classification").classes == 50


def test_how_a_table_may_be_written(tmp_path: Path) -> None:
    rows = [f"{i};{i % 2}" for i in range(20)]
    (tmp_path / "data.csv").write_bytes(b"\xef\xbb\xbf" + "\r\n".join(["a;t", *rows, "", ""]).encode())
    result = read(tmp_path, standardise=False)
    assert sorted(every(result, "x").flatten().tolist()) == list(range(20))
    quoted = [f'"{i}","{"k, l" if i % 2 else "m"}",{i % 2}' for i in range(20)]
    table(tmp_path, quoted, header="a,text,t")
    assert read(tmp_path).input_shape == (2,)
    table(tmp_path, [f"{i % 2},{i},{i}" for i in range(20)], header="t,a,id")
    assert torch.equal(
        every(read(tmp_path, target="t", ignore=["id"], standardise=False), "x") % 2,
        every(read(tmp_path, target="t", ignore=["id"], standardise=False), "y")[:, None].float(),
    )


@pytest.mark.parametrize(
    ("header", "rows", "said"),
    [
        ("a,b", ["1,x", "2,", "3,x"], "line 3, column 'b' is empty"),
        ("a,b", ["1,x", "NA,y", "3,x"], "line 3, column 'a' is 'NA'"),
        ("a,b", ["1,x", "?,y", "3,x"], "line 3, column 'a' is '?'"),
        ("a,b", ["1,x", "nan,y", "3,x"], "line 3, column 'a' is 'nan'; fill in what is missing"),
        ("a,b", ["1,x", "1e999,y", "3,x"], "line 3, column 'a' is '1e999', and a number must be finite"),
        ("a,b", ["1,x", "1e300,y", "3,x"], "line 3, column 'a' is '1e300', which is beyond float32"),
        (
            "a,b",
            [*(f"{i}.5,{i % 2}" for i in range(18)), "O.5,1"],
            "line 20, column 'a' is 'O.5', and 18 others are num",
        ),
        (
            "a,b",
            [*(f"{i},{i}.5" for i in range(18)), "3,4.5.6"],
            "line 20, column 'b' is '4.5.6', and 18 others are num",
        ),
        ("a,b", ["1,x", "1,y,z", "3,x"], "line 3 has 3 cells, and the table has 2 columns"),
        ("a,b", ["1,x", "1", "3,x"], "line 3, column 'b' is empty"),
        ("a,a", ["1,x"], "two columns called 'a'"),
        (",a,b", ["0,1,x"], "no name for column 1"),
        ("1,2", ["1,2"], "begins with numbers"),
        ("a,b", [], "has no rows"),
        ("a,b", ["1,x"] * 9, "every example has the target x"),
        ("a,b", [f"w{i},{i % 2}" for i in range(200)], "column 'a' is 'w0', so the column is text, and it has 200"),
        ("a,b", ["1,2.5"] * 9, "every example has the target 2.5; there is nothing to predict"),
        ("a;b", ["1;x", "2,5;y", "3;x"], "line 3, column 'a' is '2,5'; write numbers with a decimal point"),
        ("a;b", ["1;2,5", "2;-,5", "3;1,5e3"], "line 2, column 'b' is '2,5'; write numbers with a decimal point"),
        ("a,b", ['"1,234",x', '"1,234,567.5",y'], "line 2, column 'a' is '1,234'; write numbers with"),
        ("b", ["1", "2"], "has no column beside the target 'b'"),
        ("a,b", ['1,"x', "2,y"], "could not be read as a table"),
        ("a,b", ["1,x", "2,y"], "too few"),
    ],
)
def test_tables_that_are_refused(header: str, rows: list[str], said: str, tmp_path: Path) -> None:
    table(tmp_path, rows, header=header)
    with pytest.raises(DataError) as caught:
        read(tmp_path)
    assert said in str(caught.value)
    assert "data.csv" in str(caught.value)


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    table(tmp_path, rows_of())
    with pytest.raises(DataError, match=r"no column 'lable', which data.target names.*Did you mean 'label'"):
        read(tmp_path, target="lable")
    with pytest.raises(DataError, match=r"which data\.ignore names"):
        read(tmp_path, ignore=["id"])
    with pytest.raises(DataError, match=r"the target is text \('\w+', \.\.\.\); a regression needs numbers"):
        read(tmp_path, task="regression")
    (tmp_path / "latin.csv").write_bytes(b"a,b\n\xff,1\n")
    with pytest.raises(DataError, match="UTF-8"):
        read(tmp_path, "latin.csv")
    with pytest.raises(DataError, match="does not exist"):
        read(tmp_path, "nowhere.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match="is not a file"):
        read(tmp_path, "folder.csv")


# -- arrays -------------------------------------------------------------------------------------------------


def arrays(folder: Path, **given: Any) -> None:
    np.savez(folder / "data.npz", **given)


def test_arrays_with_parts_of_their_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 2, 4, 4)), np.arange(30) % 3
    arrays(tmp_path, x_train=x, y_train=y, x_test=x[:6] + 1, y_test=y[:6])
    result = read(tmp_path, "data.npz", standardise=False)
    assert (result.input_shape, result.classes) == ((2, 4, 4), 3)
    assert torch.equal(result.test_x, torch.from_numpy((x[:6] + 1).astype(np.float32)))
    assert (len(result.train_x), len(result.validation_x)) == (24, 6)
    scaled = read(tmp_path, "data.npz")
    np.testing.assert_allclose(scaled.train_x.mean(), 0, atol=1e-6)  # one mean for the whole image
    np.testing.assert_allclose(scaled.train_x.square().mean(), 1, rtol=1e-5)
    assert load_examples(Data(file="data.npz"), base=tmp_path, flat=True).input_shape == (32,)


def test_arrays_of_every_kind(tmp_path: Path) -> None:
    x = np.arange(40, dtype=np.uint8).reshape(20, 2)
    arrays(tmp_path, x=x, y=np.array(["b", "a"] * 10), z=np.arange(40.0).reshape(20, 2), w=np.arange(20.0)[:, None])
    assert read(tmp_path, "data.npz").labels == ("a", "b")
    both = read(tmp_path, "data.npz", target="z")
    assert (both.task, both.outputs) == ("regression", 2)
    assert read(tmp_path, "data.npz", target="w").outputs == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"x": np.zeros((4, 2))}, "no array 'y'; it has x"),
        ({"x": np.zeros((4, 2)), "y": np.zeros(4, int), "x_test": np.zeros((1, 2))}, "no array 'y_test'"),
        ({"x": np.zeros((4, 2)), "y": np.zeros(3, int)}, "their shapes are (4, 2) and (3,)"),
        ({"x": np.zeros(4), "y": np.zeros(4, int)}, "one row (or image) for each example"),
        ({"x": np.array([[1, 2], [np.nan, 3]]), "y": np.array([0, 1])}, "x[1, 0] is nan"),
        ({"x": np.array([["a"], ["b"]]), "y": np.array([0, 1])}, "x holds <U1, where numbers are expected"),
        ({"x": np.array([[1e300], [1.0]]), "y": np.array([0, 1])}, "beyond 3.40282e+38"),
        ({"x": np.array([[{}], [1]], dtype=object), "y": np.array([0, 1])}, "arrays of Python objects are refused"),
        (
            {"x": np.zeros((9, 2)), "y": np.arange(9) % 2, "x_test": np.zeros((1, 3)), "y_test": np.zeros(1, int)},
            "the parts of x differ in shape",
        ),
        (
            {"x": np.zeros((9, 2)), "y": np.arange(9) % 2, "x_test": np.zeros((1, 2)), "y_test": np.array([7])},
            "the label 7 occurs in the test or validation part alone",
        ),
        ({"x": np.zeros((9, 2)), "y": np.arange(9) / 2}, "task: regression is fine"),
    ],
    ids=range(11),
)
def test_arrays_that_are_refused(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    arrays(tmp_path, **given)
    if said == "task: regression is fine":
        assert read(tmp_path, "data.npz").task == "regression"
        said = "a classification needs one label"
        with pytest.raises(DataError, match=said):
            read(tmp_path, "data.npz", task="classification")
        return
    with pytest.raises(DataError) as caught:
        read(tmp_path, "data.npz")
    assert said in str(caught.value)


def test_a_file_that_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "data.npz").write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(DataError, match="could not be read as arrays"):
        read(tmp_path, "data.npz")


# -- fingerprints and places --------------------------------------------------------------------------------


def test_the_fingerprint_is_of_what_is_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        table(tmp_path / name, rows_of())
    first, second = read(tmp_path / "one"), read(tmp_path / "two")
    assert first.fingerprint == second.fingerprint
    assert first.base == str(tmp_path / "one")
    assert load_examples(Data(file=str(tmp_path / "one" / "data.csv"))).fingerprint == first.fingerprint
    monkeypatch.chdir(tmp_path)
    assert load_examples(Data(file=os.path.join("two", "data.csv")), base="one").fingerprint == first.fingerprint
    different = [read(tmp_path / "one", split_seed=1), read(tmp_path / "one", standardise=False)]
    table(tmp_path / "two", [*rows_of(59), "59,497.287,z,no"])  # one digit of 5,000
    different.append(read(tmp_path / "two"))
    assert len({first.fingerprint, *(item.fingerprint for item in different)}) == 4


def test_the_test_part_does_not_depend_on_the_validation_part(tmp_path: Path) -> None:
    table(tmp_path, rows_of())
    few, many = (read(tmp_path, validation=share, standardise=False) for share in (0.1, 0.5))
    assert torch.equal(few.test_x, many.test_x)
    assert len(few.validation_x) < len(many.validation_x)
    assert few.to("cpu").fingerprint == few.fingerprint
