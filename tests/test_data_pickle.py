"""Pickles of plain values are read, and whatever else a pickle may ask for is refused before it happens."""

from __future__ import annotations

import os
import pickle
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_files import python_2_pickle
from softknee.errors import DataError
from softknee.lab.data.images import load_image_set
from softknee.lab.data.plain_pickle import read_pickle

GOOD = python_2_pickle(np.arange(24, dtype=np.uint8).reshape(2, 12), "labels", [1, 2])


@pytest.mark.parametrize("protocol", range(5))
def test_plain_values_come_back(protocol: int) -> None:
    values = {"a": [1, -(2**40), "é"], "b": b"\0\xff", "c": {"d": (1, 2, None, True)}, "e": np.arange(6, dtype="u1")}
    found = read_pickle(pickle.dumps(values, protocol=protocol), what="it")
    assert found["e"].tolist() == [0, 1, 2, 3, 4, 5]
    assert {key: found[key] for key in "abc"} == {key: values[key] for key in "abc"}


def test_a_pickle_of_python_2() -> None:
    found = read_pickle(GOOD, what="it")
    assert found[b"data"].tolist() == np.arange(24).reshape(2, 12).tolist()
    assert found[b"labels"] == [1, 2]


class Runs:
    """Makes a file when it is unpickled by what runs all that a pickle asks for."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_runs(protocol: int, tmp_path: Path) -> None:
    hostile = pickle.dumps({"data": Runs(tmp_path / "ran"), "labels": [1]}, protocol=protocol)
    place = tmp_path / "cifar-100-python"
    place.mkdir()
    (place / "train").write_bytes(hostile)
    (place / "test").write_bytes(GOOD)
    with pytest.raises(DataError, match=r"train' asks for \w+\.mkdir, and only arrays, bytes, .*run code"):
        load_image_set("cifar-100", tmp_path, check=False)
    assert not (tmp_path / "ran").exists()
    pickle.loads(hostile)  # and it would have run
    assert (tmp_path / "ran").exists()


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85U\x01btR"
KIND = b"cnumpy\ndtype\n(U\x02u1K\0K\x01tR"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"(S'ls'\nios\nsystem\n.", "instruction INST"),
        (b"(cos\nsystem\nS'ls'\no.", "instruction OBJ"),
        (b"\x80\x02\x82\x01.", "instruction EXT1"),
        (b"Pabc\n.", "instruction PERSID"),
        (b"\x80\x02cnumpy\nndarray\n)\x81.", "instruction NEWOBJ"),
        (b"\x80\x02cnumpy\nload\n.", r"asks for numpy\.load"),
        (b"\x80\x02cbuiltins\neval\nU\x011\x85R.", r"asks for builtins\.eval"),
        (b"\x80\x04\x8c\x08builtins\x8c\x04exec\x93.", r"asks for builtins\.exec"),
        (b"\x80\x04\x8c\x05numpy\x8c\x11ndarray.__class__\x93.", r"asks for numpy\.ndarray\.__class__"),
        (b"\x80\x02cnumpy\nndarray\n.", "no array, bytes"),
        (b"\x80\x02cnumpy\ndtype\n)R.", "calls dtype with other values"),
        (b"\x80\x02c_codecs\nencode\nX\x01\0\0\0aU\x05rot13\x86R.", "calls encode with other values"),
        (b"\x80\x02c_codecs\nencode\nN}U\x05_nameU\x01xs\x86b.", "no pickle of plain values|calls"),
        (b"\x80\x02" + ARRAY + b".", "without its bytes"),
        (b"\x80\x02" + ARRAY + b"(K\x01K\x09\x85" + KIND + b"\x89U\x02abtb.", r"shape \(9,\) and has 2 bytes"),
        (b"\x80\x02" + ARRAY + b"(K\x01J\xff\xff\xff\xffJ\xfe\xff\xff\xff\x86" + KIND + b"\x89U\x02abtb.", "shape"),
        (b"\x80\x02" + ARRAY + b"(K\x01K\x02\x85" + KIND.replace(b"u1", b"O8") + b"\x89U\x02abtb.", "array of b'O8'"),
        (b"\x80\x02" + ARRAY + b"]b.", "not written as NumPy"),
        (b"\x80\x02Nr" + struct.pack("<I", 2**31) + b".", "more than 2,000,000 values"),
        (b"", "cut short"),
        (b"no pickle", "no pickle"),
        (GOOD[:-1], "cut short"),
        (GOOD[:60], "cut short"),
        (pickle.dumps({"data": np.zeros(4)}, protocol=2), "array of 'f8'"),
        (pickle.dumps({"data": np.zeros(4, "u1")}, protocol=5), "asks for|instruction"),
        (pickle.dumps({"data": 1.5}, protocol=2), "instruction BINFLOAT"),
        (pickle.dumps({"data": {1}}, protocol=4), "instruction EMPTY_SET"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_hostile_and_damaged(content: bytes, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        read_pickle(content, what="The file")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_changed_bytes_give_a_value_or_a_sentence(changes: list[tuple[int, int]]) -> None:
    content = bytearray(GOOD)
    for place, value in changes:
        content[place] = value
    with suppress(DataError):  # no other error comes out
        read_pickle(bytes(content), what="The file")


def test_a_pickle_of_something_else_than_cifar(tmp_path: Path) -> None:
    place = tmp_path / "cifar-100-python"
    place.mkdir()
    for content, sentence in (
        ([1, 2], "holds a list"),
        ({"data": b"abc", "fine_labels": [1]}, "no array 'data'"),
        ({"data": np.zeros((2, 3072), "u1"), "fine_labels": [1]}, "2 images and 1 labels"),
        ({"data": np.zeros((1, 3072), "u1"), "fine_labels": [300]}, "no classes"),
        ({"data": np.zeros((1, 3072), "u1"), "fine_labels": [100]}, "label 100, where labels are 0 to 99"),
    ):
        for name in ("train", "test"):
            (place / name).write_bytes(pickle.dumps(content, protocol=2))
        with pytest.raises(DataError, match=sentence):
            load_image_set("cifar-100", tmp_path, check=False)
