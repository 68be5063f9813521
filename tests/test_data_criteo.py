"""Criteo: rows of text become buckets in shards and floats; damaged lines are named; memory does not grow."""

from __future__ import annotations

import gzip
import io
import json
import math
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch

from data_files import criteo_lines, write_criteo
from softknee.errors import DataError, ParameterError
from softknee.files import WriteError
from softknee.lab.data import criteo
from softknee.lab.data.criteo import (
    BUCKETS,
    EMBEDDINGS,
    INPUTS,
    MISSING,
    Block,
    Shards,
    bucket_of,
    convert,
    features,
    load_criteo,
    log_square,
    read_blocks,
)
from softknee.lab.studies.examples import load_examples
from softknee.lab.studies.recipe import Data


def plain_bucket(field: bytes, column: int) -> int:
    """The hash in whole numbers of Python."""
    mask = 2**64 - 1
    z = ((int(field, 16) if field else 2**32) + (column + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return (z ^ (z >> 31)) % BUCKETS[column]


def plain_row(line: bytes) -> tuple[int, list[int], list[int]]:
    label, *fields = line.split(b"\t")
    numbers = [int(field) if field else MISSING for field in fields[:13]]
    return int(label), numbers, [plain_bucket(item, column) for column, item in enumerate(fields[13:])]


def plain_features(line: bytes) -> list[float]:
    _, numbers, buckets = plain_row(line)
    return [0.0 if v == MISSING else math.log(v) ** 2 if v > 2 else float(v) for v in numbers] + list(
        map(float, buckets)
    )


def rows(blocks: list[Block]) -> list[tuple[int, list[int], list[int]]]:
    return [
        (int(block.labels[at]), block.numbers[:, at].tolist(), block.buckets[:, at].tolist())
        for block in blocks
        for at in range(len(block))
    ]


# -- the paper's numbers ------------------------------------------------------------------------------------


def test_buckets_and_embeddings_are_those_of_the_paper() -> None:
    assert " ".join(map(str, BUCKETS)) == (
        "1373 2148 4847 9781 396 28 3591 2798 14 7403 2511 5598 9501 "
        "46 4753 4056 23 3828 5856 12 4226 23 61 3098 494 5087"
    )
    assert " ".join(map(str, EMBEDDINGS)) == "3 9 29 11 17 0 14 4 0 12 19 24 29 0 13 25 0 8 29 0 22 0 0 31 0 29"
    odd = [n for n, d in zip(BUCKETS, EMBEDDINGS, strict=True) if (n < 110) != (d == 0)]
    assert odd == [494]  # the one place where the printed sizes and the printed rule differ
    assert INPUTS == 13 + 328 + 28 + 14 + 46 + 23 + 12 + 23 + 61 + 494


def test_numbers_are_log_squared() -> None:
    values = np.array([MISSING, -3, -1, 0, 1, 2, 3, 100, 2**31 - 1], dtype=np.int32)
    wanted = [0, -3, -1, 0, 1, 2, math.log(3) ** 2, math.log(100) ** 2, math.log(2**31 - 1) ** 2]
    np.testing.assert_allclose(log_square(values), wanted, rtol=1e-7)


def test_a_column_fills_its_buckets_evenly() -> None:
    for column, buckets in enumerate(BUCKETS):
        actual = bucket_of(np.arange(20_000, dtype=np.uint64), column)
        counts = np.bincount(actual, minlength=buckets)
        assert len(counts) == buckets
        expected = 20_000 / buckets
        # Chi-squared has the mean N - 1 and the variance 2 (N - 1).
        assert abs(((counts - expected) ** 2 / expected).sum() - (buckets - 1)) < 5 * math.sqrt(2 * (buckets - 1))


# -- text ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_rows_are_read_as_a_plain_loop_reads_them(ending: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(criteo, "_SHARD_BLOCK", 7)
    lines = criteo_lines(40)
    blocks = list(read_blocks(io.BytesIO(ending.join(lines)), Path("it")))  # the last line may end without a mark
    assert [len(block) for block in blocks] == [7, 7, 7, 7, 7, 5]
    assert rows(blocks) == [plain_row(line) for line in lines]
    x, y = features(blocks[2])
    np.testing.assert_allclose(x, [plain_features(line) for line in lines[14:21]], rtol=1e-6)
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    assert torch.equal(x[:, 13:], x[:, 13:].round())


def changed(field: int, value: bytes) -> bytes:
    fields = criteo_lines(1)[0].split(b"\t")
    fields[field] = value
    return b"\t".join(fields)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"", "it has 1 field; a row has 40 fields"),
        (b"0,1,2", "it has 1 field; a row"),
        (criteo_lines(1)[0] + b"\t", "it has 41 fields"),
        (criteo_lines(1)[0].partition(b"\t")[2], "39 fields, as Kaggle's test.txt has"),
        (changed(0, b"2"), "its label is '2'"),
        (changed(0, b""), "its label is ''"),
        (changed(3, b"1.5"), "field 4 is '1.5', where it is a whole number"),
        (changed(3, b"1_0"), "field 4 is '1_0'"),
        (changed(13, b"-"), "field 14 is '-'"),
        (changed(13, b"3000000000"), "field 14 is '3000000000'"),
        (changed(13, b"-2147483648"), "field 14 is '-2147483648'"),
        (changed(14, b"0123456g"), "field 15 is '0123456g', where it is eight hex digits"),
        (changed(39, b"0123"), "field 40 is '0123'"),
        (changed(39, b"--------"), "field 40 is '--------'"),
        (b"x" * 5000, "more than 1023 bytes"),
    ],
    ids=lambda one: one[:24] if isinstance(one, str) else "",
)
def test_a_damaged_line_is_named(line: bytes, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(criteo, "_SHARD_BLOCK", 4)
    text = b"\n".join([*criteo_lines(9), line, *criteo_lines(3)]) + b"\n"
    with pytest.raises(DataError) as caught:
        list(read_blocks(io.BytesIO(text), Path("train.txt")))
    assert str(caught.value).startswith("'train.txt', line 10: ")
    assert sentence in str(caught.value)
    assert str(caught.value).endswith("Get the file again, or take the line out.")


def test_two_damages_that_even_out_are_seen() -> None:
    short, long = criteo_lines(2)
    text = b"\n".join([short.rpartition(b"\t")[0], long + b"\t"])
    with pytest.raises(DataError, match="line 1: it has 39 fields"):
        list(read_blocks(io.BytesIO(text), Path("it")))


# -- shards -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [False, True])
def test_shards_hold_the_rows_of_the_text(zipped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(criteo, "_SHARD_BLOCK", 16)
    raw = tmp_path / "train.txt"
    lines = write_criteo(raw, 105)
    if zipped:
        raw.write_bytes(gzip.compress(raw.read_bytes()))
    told: list[str] = []
    shards = convert(raw, tmp_path / "deep" / "shards", rows=40, report=told.append)
    assert (len(shards), shards.counts, told[-1]) == (105, (40, 40, 25), "105 rows")
    wanted = [plain_row(line) for line in lines]
    for size, start, stop in ((105, 0, None), (13, 0, None), (7, 38, 83), (50, 100, 200)):
        blocks = list(shards.blocks(size=size, start=start, stop=stop))
        assert rows(blocks) == wanted[start:stop]
        assert all(len(block) == size for block in blocks[:-1])
    assert sorted(item.name for item in tmp_path.iterdir()) == ["deep", "train.txt"]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["shards"]


def test_memory_does_not_grow_with_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(criteo, "_SHARD_BLOCK", 50)
    lines = write_criteo(tmp_path / "few", 250)
    (tmp_path / "many").write_bytes(b"\n".join(lines * 9) + b"\n")
    peaks = {}
    convert(tmp_path / "few", tmp_path / "warm", rows=100)
    for name in ("few", "many"):
        tracemalloc.start()
        try:
            convert(tmp_path / name, tmp_path / f"{name}-shards", rows=100)
            peaks[name] = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    # Nine times as many rows, if they were kept, would take 2,000 times 105 bytes more at the least.
    # What other threads take meanwhile, and what awaits the collector, is a few thousand.
    assert peaks["many"] - peaks["few"] < 100_000 < 2000 * 105


def test_a_damaged_text_leaves_nothing_behind(tmp_path: Path) -> None:
    raw = tmp_path / "train.txt"
    raw.write_bytes(b"\n".join([*criteo_lines(50), b"damaged"]))
    with pytest.raises(DataError, match="line 51"):
        convert(raw, tmp_path / "shards", rows=10)
    raw.write_bytes(b"")
    with pytest.raises(DataError, match="is empty"):
        convert(raw, tmp_path / "shards")
    assert list(tmp_path.iterdir()) == [raw]


def test_where_shards_are_not_written(tmp_path: Path) -> None:
    write_criteo(tmp_path / "raw" / "train.txt", 3)
    with pytest.raises(WriteError, match="not empty"):
        convert(tmp_path / "raw" / "train.txt", tmp_path / "raw")
    with pytest.raises(WriteError, match="could not be written to"):
        convert(tmp_path / "raw" / "train.txt", tmp_path / "raw" / "train.txt" / "deep")
    with pytest.raises(DataError, match=r"There is no file .*train\.txt from the Criteo Display"):
        convert(tmp_path / "none.txt", tmp_path / "shards")
    with pytest.raises(ParameterError, match="at least one row"):
        convert(tmp_path / "raw" / "train.txt", tmp_path / "shards", rows=0)
    (tmp_path / "empty").mkdir()
    assert len(convert(tmp_path / "raw" / "train.txt", tmp_path / "empty")) == 3


def test_damaged_shards_are_refused(tmp_path: Path) -> None:
    write_criteo(tmp_path / "raw.txt", 30)
    folder = tmp_path / "shards"

    def refused(sentence: str) -> None:
        with pytest.raises(DataError, match=sentence):
            list(Shards(folder).blocks(size=100))

    refused("has no meta.json. Make them with: softknee data criteo RAW OUT")
    convert(tmp_path / "raw.txt", folder, rows=20)
    labels = np.load(folder / "00001-labels.npy")
    np.save(folder / "00001-labels.npy", labels ^ 128)  # one bit
    refused("a label that is neither 0 nor 1. Make the shards again")
    np.save(folder / "00001-labels.npy", labels)
    buckets = np.load(folder / "00001-buckets.npy")
    np.save(folder / "00001-buckets.npy", buckets + 10_000)
    refused("buckets beyond their number")
    np.save(folder / "00001-buckets.npy", buckets[:, 1:])
    refused(r"holds \(26, 9\) in int16, unlike meta.json. Make the shards again")
    (folder / "00001-buckets.npy").write_bytes(b"\x93NUMPY")
    refused("00001-buckets.npy' could not be read")
    (folder / "00001-buckets.npy").unlink()
    refused("00001-buckets.npy' could not be read")
    meta = json.loads((folder / "meta.json").read_text())
    for change, sentence in (({"rows": [1.5]}, "how many rows"), ({"buckets": [1]}, "other numbers of buckets")):
        (folder / "meta.json").write_text(json.dumps({**meta, **change}))
        refused(sentence)
    (folder / "meta.json").write_text("{")
    refused("is not JSON")


# -- in a study ---------------------------------------------------------------------------------------------


def test_a_study_takes_shards_in_the_order_of_time(tmp_path: Path, softknee) -> None:
    lines = write_criteo(tmp_path / "criteo" / "train.txt", 450)
    with pytest.raises(DataError) as caught:
        load_criteo(tmp_path)
    command = str(caught.value).partition("Make them once with: softknee ")[2].split()
    code, out, _ = softknee(*command)
    assert (code, out) == (0, f"450 rows in 1 shard are in '{tmp_path / 'criteo' / 'shards'}'.\n")
    actual = load_examples(Data(set="criteo"), folder=tmp_path)
    assert actual.sentence() == ("criteo: 370 training, 40 validation, 40 test examples of shape 39, 2 classes")
    for part, start, stop in (("train", 0, 370), ("validation", 370, 410), ("test", 410, 450)):
        wanted = [plain_features(line) for line in lines[start:stop]]
        np.testing.assert_allclose(getattr(actual, f"{part}_x"), wanted, rtol=1e-6)
        assert getattr(actual, f"{part}_y").tolist() == [plain_row(line)[0] for line in lines[start:stop]]


def test_the_small_files_come_in_their_parts(tmp_path: Path) -> None:
    sizes = {"train": 30, "dev": 10, "test": 9}
    lines = {part: write_criteo(tmp_path / "criteo" / f"dac8k_{part}.tsv", n, seed=n) for part, n in sizes.items()}
    result = load_criteo(tmp_path)
    for part, name in (("train", "train"), ("validation", "dev"), ("test", "test")):
        x, y = result[part]
        np.testing.assert_allclose(x, [plain_features(line) for line in lines[name]], rtol=1e-6)
        assert y.tolist() == [plain_row(line)[0] for line in lines[name]]
    (tmp_path / "criteo" / "dac8k_test.tsv").write_bytes(b"")
    with pytest.raises(DataError, match="is empty"):
        load_criteo(tmp_path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load_criteo(tmp_path)
    for said in ("criteo/shards/meta.json", "criteo/train.txt", "dac8k_dev.tsv", str(tmp_path), "Kaggle", "nothing"):
        assert said in str(caught.value)
    write_criteo(tmp_path / "raw.txt", 5)
    convert(tmp_path / "raw.txt", tmp_path / "criteo" / "shards")
    with pytest.raises(DataError, match="has 5 rows, too few"):
        load_criteo(tmp_path)
