"""The record: what it keeps, what it refuses, and that a file is whole or untouched."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from softknee.errors import SoftkneeError
from softknee.measure import Quantity, Record, RecordError, WriteError, without_paths
from softknee.measure.record import SCHEMA


def sample(**changes: object) -> Record:
    rows = [
        {
            "function": "srelu",
            "forward": Quantity.median([1.0, 1.1, 1.3], unit="x copy"),
            "tags": ["a", ["b"]],
        },
        {"function": "squaf", "not_run": "It ran out of memory."},
    ]
    record = Record.now(
        "test", command="softknee test", rows=rows, seeds=[0, 1], settings={"widths": [64, 10], "rate": 1e-3}
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def test_json_round_trip_keeps_everything() -> None:
    record = sample()
    assert Record.from_json(record.to_json()) == record


def test_file_round_trip_leaves_only_the_file(tmp_path: Path) -> None:
    record = sample()
    written = record.write(tmp_path / "record.json")
    assert Record.read(written) == record
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]


def test_median_has_quartiles_and_mean_has_deviation() -> None:
    median = Quantity.median([4.0, 1.0, 2.0, 3.0, 100.0], unit="s")
    assert (median.value, median.low, median.high, median.repeats) == (3.0, 2.0, 4.0, 5)
    mean = Quantity.mean([1.0, 2.0, 3.0], unit="%")
    assert (mean.value, mean.spread, mean.text(1)) == (2.0, 1.0, "2.0 ± 1.0")
    single = Quantity.mean([5.0], unit="%")
    assert (single.spread, single.text(1)) == (0.0, "5.0")
    with pytest.raises(RecordError, match="at least one sample"):
        Quantity.median([], unit="s")


def test_nothing_of_the_machine_but_its_hardware() -> None:
    text = sample().to_json()
    assert os.path.expanduser("~") not in text or os.path.expanduser("~") == "/"
    assert os.uname().nodename not in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("softknee --json /home/someone/runs/a.json", "softknee --json a.json"),
        ("--json=/home/someone/a.json --epochs 3", "--json=a.json --epochs 3"),
        ("open('/srv/data/x.bin') failed", "open('x.bin') failed"),
        (r"C:\Users\someone\a.json", "a.json"),
        ("~/runs/a.json", "a.json"),
        ("1/2 of a/b, km/h, and https://example.org/a/b", "1/2 of a/b, km/h, and https://example.org/a/b"),
    ],
)
def test_paths_are_cut_to_their_last_part(before: str, after: str) -> None:
    assert without_paths(before) == after
    assert Record.now("test", command=before, rows=[]).command == after


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"rows": ({"loss": float("nan")},)}, r"rows\[0\].loss is nan"),
        ({"settings": {"rate": float("inf")}}, r"settings.rate is inf"),
        ({"rows": ({"place": "/srv/data/set"},)}, "names no place on a disk"),
        ({"rows": ({"odd": object()},)}, "a object, which a record cannot hold"),
        ({"schema": SCHEMA + 1}, "has schema"),
        ({"created": "yesterday"}, "write it in UTC"),
    ],
)
def test_unfit_contents_are_refused(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(RecordError, match=sentence):
        sample(**change)


def changed(**changes: object) -> str:
    return json.dumps(json.loads(sample().to_json()) | changes)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (changed(schema=99), "record schema 99; this softknee reads schema 1"),
        (changed(extra=1), "unknown key 'extra'"),
        (changed(comand="x"), "Did you mean 'command'"),
        (changed(seeds="0"), "record.seeds should be a list"),
        (changed(seeds=[0.5]), r"record.seeds\[0\] should be a whole number, and is 0.5"),
        (changed(hardware={"cpu": "x"}), "record.hardware lacks 'cores'"),
        (json.dumps({"schema": SCHEMA}), "record lacks 'kind'"),
        (changed(kind=True), "record.kind should be text"),
        ("[]", "a record is a JSON object"),
        (changed(settings={"rate": float("nan")}), "holds NaN"),
    ],
    ids=range(10),  # the texts hold the time: names made of them would differ between two workers
)
def test_strange_json_is_refused_with_the_reason(text: str, sentence: str) -> None:
    with pytest.raises(RecordError, match=sentence):
        Record.from_json(text)


def test_a_truncated_file_is_told_apart(tmp_path: Path) -> None:
    text = sample().to_json()
    for length in (0, 1, len(text) // 3, len(text) - 3):
        path = tmp_path / "cut.json"
        path.write_text(text[:length], encoding="utf-8")
        with pytest.raises(RecordError, match="not a whole record"):
            Record.read(path)


def test_reading_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No record could be read"):
        Record.read(tmp_path / "none.json")


def test_a_failing_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.json"
    sample().write(path)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match=r"No space left on device.*is unchanged") as caught:
        sample(kind="another").write(path)
    assert isinstance(caught.value, SoftkneeError)
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["record.json"]


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="Choose a folder that exists"):
        sample().write(tmp_path / "no" / "record.json")
