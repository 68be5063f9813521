"""The data folder and its files, plain or compressed: what is missing, damaged or no file is one sentence."""

import bz2
import gzip
import lzma
import os
import re
from contextlib import suppress
from pathlib import Path

import pytest

from softknee.errors import DataError
from softknee.files import WriteError
from softknee.lab.data.files import VARIABLE, data_folder, find_file, opened, read_bytes, read_text

TEXT = "to be or not to be, über alles\n" * 500
WAYS = {"plain": lambda content: content, "gzip": gzip.compress, "xz": lzma.compress}


@pytest.mark.parametrize("way", WAYS)
def test_the_first_bytes_say_how_it_is_compressed(tmp_path: Path, way: str) -> None:
    for name in ("file", "file.txt") if way == "plain" else ("file", "file.gz", "file.xz"):
        (tmp_path / name).write_bytes(WAYS[way](TEXT.encode()))
        assert read_text(tmp_path / name, what="text") == TEXT
        with opened(str(tmp_path / name), what="text") as stream:
            assert stream.read(5) + stream.read() == TEXT.encode()


@pytest.mark.parametrize("way", WAYS)
def test_no_more_is_read_than_allowed(tmp_path: Path, way: str) -> None:
    (tmp_path / "file").write_bytes(WAYS[way](b"123"))
    assert read_bytes(tmp_path / "file", what="number", most_bytes=3) == b"123"
    with pytest.raises(DataError, match="holds more than 2 bytes, which no number does"):
        read_bytes(tmp_path / "file", what="number", most_bytes=2)


@pytest.mark.parametrize("way", ["gzip", "xz"])
def test_what_is_damaged_is_a_sentence(tmp_path: Path, way: str) -> None:
    whole, file = WAYS[way](TEXT.encode()), tmp_path / "file"
    for damaged in (
        whole[:-1],
        whole[: len(whole) // 2],
        whole[:-6] + b"\0" * 6,
        whole[:40] + b"\xff\xff" + whole[42:],
    ):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match=rf"{re.escape(str(file))}' cannot be decompressed .* get it again"):
            read_bytes(file, what="text", most_bytes=2**20)


@pytest.mark.parametrize("ending", [".gz", ".xz"])
def test_a_name_that_promises_too_much(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"file{ending}"
    for content in (b"", b"plain", bz2.compress(b"plain")):
        file.write_bytes(content)
        with pytest.raises(DataError, match=rf"is called \{ending} but not compressed so"):
            read_bytes(file, what="text", most_bytes=9)


def test_what_is_no_file_or_no_text(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", "a\0b"):
        with pytest.raises(DataError, match=r"The vocabulary '.*' could not be read"):
            read_text(path, what="vocabulary")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(DataError, match="is not a file, so no vocabulary"):
            read_text(path, what="vocabulary")
    (tmp_path / "bytes").write_bytes(b"abc\xff")
    with pytest.raises(DataError, match=r"not text in UTF-8 \(byte 3\)"):
        read_text(tmp_path / "bytes", what="vocabulary")


def test_errors_of_who_reads_are_left_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    for error in (WriteError("the disk is full"), ValueError("no number")):
        with pytest.raises(type(error)) as caught, opened(tmp_path / "file", what="text"):
            raise error
        assert caught.value is error


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts open files in /proc/self/fd")
def test_no_file_stays_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "cut.xz").write_bytes(lzma.compress(TEXT.encode())[:40])

    def ours() -> list[str]:
        """Not their number: what other tests left open is closed at any time, and other threads open files."""
        places = []
        for item in os.listdir("/proc/self/fd"):
            with suppress(FileNotFoundError):  # closed meanwhile
                places.append(os.readlink(f"/proc/self/fd/{item}"))
        return [place for place in places if Path(place).is_relative_to(tmp_path.resolve())]

    with (tmp_path / "cut.xz").open("rb"):
        assert len(ours()) == 1  # an open file is seen
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "cut.xz"):
        with pytest.raises(DataError):
            read_bytes(path, what="text", most_bytes=2**20)
    assert ours() == []


# -- the data folder ----------------------------------------------------------------------------------------


def test_what_is_given_comes_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, named = tmp_path / "given", tmp_path / "named"
    given.mkdir()
    named.mkdir()
    monkeypatch.setenv(VARIABLE, str(named))
    assert data_folder(given) == given
    assert data_folder(str(given)) == given
    assert data_folder() == named


@pytest.mark.parametrize("setting", [None, ""])
def test_no_folder_at_all_says_what_to_set(monkeypatch: pytest.MonkeyPatch, setting: str | None) -> None:
    if setting is None:
        monkeypatch.delenv(VARIABLE, raising=False)
    else:
        monkeypatch.setenv(VARIABLE, setting)
    with pytest.raises(DataError, match=r"--data FOLDER.*SOFTKNEE_DATA"):
        data_folder()


def test_a_folder_that_is_none_is_refused_with_its_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(DataError, match="that was given is not a folder"):
        data_folder(file)
    with pytest.raises(DataError, match="that was given does not exist"):
        data_folder(tmp_path / "nowhere")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="that SOFTKNEE_DATA names does not exist"):
        data_folder()


def test_the_first_place_that_holds_a_file_is_taken(tmp_path: Path) -> None:
    for place in ("b", "c"):
        (tmp_path / place).touch()
    (tmp_path / "a").mkdir()  # a folder is no file
    assert find_file(tmp_path, ["a", "b", "c"], what="the set", source="nowhere") == tmp_path / "b"


def test_a_missing_file_is_named_with_every_place_and_its_source(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        find_file(tmp_path, [f"place{n}" for n in range(8)], what="The set (labels)", source="the archive")
    said = str(caught.value)
    for expected in (
        "The set (labels)",
        str(tmp_path),
        "'place0'",
        "'place5'",
        "2 more places",
        "the archive",
        VARIABLE,
    ):
        assert expected in said
    assert "downloads nothing" in said
