"""The data folder: the one given, the one of the environment, or a sentence."""

from pathlib import Path

import pytest

from softknee.errors import DataError
from softknee.lab.data_folder import VARIABLE, data_folder, find_file


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
