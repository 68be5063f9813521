"""The run store: whole files, records that are complete or refused, and states that fit or are left out."""

import json
import os
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from softknee.errors import ParameterError
from softknee.files import ReadError, WriteError
from softknee.lab.studies.examples import recipe_examples
from softknee.lab.studies.store import DamagedError, Description, Folder, RunStore, StoreError
from softknee.lab.studies.trial import Trial
from softknee.lab.studies.trials import KIND, train_trials
from softknee.measure import Record
from study_runs import quick_trial, small_recipe, write_points


class MovingFileSystem(MemoryFileSystem):
    """A store that is neither a disk nor known to put a file in one step: it gets temporary files that are moved."""

    protocol = "moving"
    store: dict = {}  # noqa: RUF012 - as the class it stands on has it
    pseudo_dirs: list = [""]  # noqa: RUF012


fsspec.register_implementation("moving", MovingFileSystem, clobber=True)


@pytest.fixture(params=["disk", "memory", "moving"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same tests in a folder, in a store of objects, and in one that needs temporary files."""
    return str(tmp_path / "study") if request.param == "disk" else f"{request.param}://{tmp_path.name}/study"


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> list[Trial]:
    folder = tmp_path_factory.mktemp("data")
    write_points(folder)
    recipe = small_recipe()
    return train_trials(recipe, recipe_examples(recipe, base=folder))


def add(store: RunStore, trial: Trial, *, position: int = 0) -> Record:
    finished = quick_trial(trial)
    record = finished.outcome.record(command="softknee study small", git={"commit": "abc", "dirty": False})
    store.add(trial.key, record, finished.files, position=position)
    return record


# -- files ------------------------------------------------------------------------------------------------


def test_a_file_is_written_read_listed_moved_and_removed(url: str) -> None:
    folder = Folder(url)
    assert folder.names("a") == folder.entries() == []
    assert folder.read("a/one") is None
    folder.write("a/one", b"first", what="file")
    folder.write("a/one", b"second", what="file")
    assert (folder.read("a/one"), folder.size("a/one"), folder.size("a/two")) == (b"second", 6, None)
    folder.move("a/one", "a/two")
    assert folder.names("a") == ["two"]
    assert folder.entries() == ["a"]
    folder.remove("a/two")
    folder.remove("a/two")
    assert folder.names("a") == []


def test_what_is_there_is_created_only_once(url: str) -> None:
    folder = Folder(url)
    folder.write("other", b"", what="file")  # makes the folder
    assert folder.create("one", b"first")
    assert not folder.create("one", b"second")
    assert folder.read("one") == b"first"


def test_temporaries_are_not_listed_and_cleaned(url: str) -> None:
    folder = Folder(url)
    folder.write("a/.one.12345678.tmp", b"half", what="file")
    folder.write("a/one", b"whole", what="file")
    assert folder.names("a") == ["one"]
    folder.clean("a")
    assert folder.read("a/.one.12345678.tmp") is None
    assert folder.read("a/one") == b"whole"


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    folder = Folder(tmp_path)
    folder.write("one", b"before", what="record of a trial")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if call == "write":
        monkeypatch.setattr(Path, "open", fail)
    else:
        monkeypatch.setattr(os, call, fail)
    with pytest.raises(
        WriteError, match=r"record of a trial could not be written to '.*one' \(No space left on device\)"
    ):
        folder.write("one", b"after", what="record of a trial")
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["one"]
    assert folder.read("one") == b"before"


def test_a_folder_on_a_file_and_an_unknown_store_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(WriteError, match="is a file, and a folder is needed"):
        RunStore(tmp_path / "file").refuse_foreign_folder()
    with pytest.raises(WriteError, match="could not be written"):
        Folder(tmp_path / "file").write("a", b"", what="record")
    with pytest.raises(ReadError, match="could not be read"):
        Folder(tmp_path).read("")
    with pytest.raises(ParameterError, match="cannot be used"):
        Folder("nowhere://study")


def test_a_folder_of_other_things_is_refused_and_unchanged(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(StoreError, match=r"holds no study: 'thesis.tex' is there\. .*--out"):
        RunStore(tmp_path).refuse_foreign_folder()
    assert os.listdir(tmp_path) == ["thesis.tex"]


# -- records ----------------------------------------------------------------------------------------------


def test_a_trial_comes_back_as_it_was(url: str, trials: list[Trial]) -> None:
    store = RunStore(url)
    for position, trial in enumerate(reversed(trials)):
        add(store, trial, position=position)
    again = RunStore(url)
    assert again.finished() == sorted(trial.key for trial in trials)
    assert [outcome.trial for outcome in again.outcomes()] == trials[::-1]
    for trial in trials:
        assert again.outcome(trial.key) == quick_trial(trial).outcome
        assert again.file(trial.key, "links.txt") == quick_trial(trial).files["links.txt"]
    settings = again.record(trials[0].key).settings
    assert settings["git"] == {"commit": "abc", "dirty": False}


def test_files_are_there_before_the_record_and_the_state_goes_after_it(
    trials: list[Trial], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, done = RunStore(tmp_path), []
    real_replace, real_remove = os.replace, store.folder.remove
    monkeypatch.setattr(os, "replace", lambda a, b: (real_replace(a, b), done.append(Path(b).parent.name)))
    monkeypatch.setattr(store.folder, "remove", lambda name: (real_remove(name), done.append(name.split("/")[0])))
    store.save_state(trials[0].key, b"1")
    add(store, trials[0])
    assert done == ["state", "files", "trials", "state"]
    assert store.state(trials[0].key) is None


def damage_cut(text: str) -> str:
    return text[: len(text) // 2]


def damage_number(text: str) -> str:
    """One digit of a result is another: only a checksum can tell."""
    at = text.index('"accuracy"')
    digit = next(index for index in range(text.index(".", at) + 1, len(text)) if text[index] in "12345678")
    return text[:digit] + str(int(text[digit]) + 1) + text[digit + 1 :]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damage_cut, "is not a whole record"),
        (lambda text: "", "is not a whole record"),
        (lambda text: "\x00" * len(text), "is not a whole record"),
        (lambda text: text.replace('"schema": 1', '"schema": 7'), "schema 7"),
        (lambda text: "[1, 2]", "is no record"),
        (damage_number, "its checksum differs"),
        (lambda text: text.replace(f'"{KIND}"', '"bench kernels"', 1), "is not the record of a trial"),
        (lambda text: text.replace('"epochs": 4', '"epochs": 5'), "was altered"),
        (lambda text: text.replace('"bytes"', '"size"'), "which files belong to it"),
        (lambda text: json.dumps(json.loads(text) | {"settings": {}}), "is not the record of a trial"),
        (lambda text: "[" * 100_000, "its JSON is nested without an end"),
        (lambda text: text.replace('"position": 0', '"position": "first"'), "which place it has in its study"),
        (lambda text: text.replace('"links.txt"', '"x/../../../links.txt"'), "which files belong to it"),
    ],
    ids=[
        *("cut", "empty", "zeros", "schema", "list", "digit", "kind", "trial", "files", "settings"),
        *("deep", "position", "way out"),
    ],
)
def test_a_damaged_record_is_refused_by_name_and_left_alone(url: str, trials: list[Trial], damage, said: str) -> None:
    store, key = RunStore(url), trials[0].key
    add(store, trials[0])
    text = (store.folder.read(f"trials/{key}.json") or b"").decode()
    assert damage(text) != text
    store.folder.write(f"trials/{key}.json", damage(text).encode(), what="damage")
    with pytest.raises(DamagedError, match=said) as refused:
        store.record(key)
    assert f"trials/{key}.json" in str(refused.value)
    assert "Nothing was changed" in str(refused.value)
    assert "--resume" in str(refused.value)
    assert store.folder.read(f"trials/{key}.json") == damage(text).encode()
    assert store.set_aside(key) == f"trials/{key}.json.damaged"
    assert store.finished() == []
    assert store.folder.read(f"trials/{key}.json.damaged") == damage(text).encode()
    add(store, trials[0])
    store.folder.write(f"trials/{key}.json", b"\xff", what="damage")
    with pytest.raises(DamagedError, match="not text in UTF-8"):
        store.record(key)
    assert store.set_aside(key) == f"trials/{key}.json.damaged-2"
    assert store.folder.names("files") == [f"{key}.links.txt.damaged", f"{key}.links.txt.damaged-2"]


def test_a_record_under_another_name_is_refused(url: str, trials: list[Trial]) -> None:
    store = RunStore(url)
    add(store, trials[0])
    store.folder.move(f"trials/{trials[0].key}.json", f"trials/{trials[1].key}.json")
    with pytest.raises(DamagedError, match=f"of another trial, '{trials[0].key}'"):
        store.outcome(trials[1].key)


def test_a_file_that_is_missing_cut_or_changed_is_refused(url: str, trials: list[Trial]) -> None:
    store, key = RunStore(url), trials[0].key
    add(store, trials[0])
    name = f"files/{key}.links.txt"
    whole = store.folder.read(name) or b""
    store.folder.write(name, whole[:-1], what="damage")
    with pytest.raises(DamagedError, match=f"has {len(whole) - 1} bytes where {len(whole)} were written"):
        store.record(key)
    store.folder.write(name, whole[:-1] + b"!", what="damage")
    with pytest.raises(DamagedError, match="is not what was written"):
        store.file(key, "links.txt")
    store.record(key)  # as long as it was: only who reads the file sees it
    with pytest.raises(DamagedError, match="is not what was written"):
        store.check_files(key)
    store.folder.remove(name)
    with pytest.raises(DamagedError, match="is missing"):
        store.record(key)
    store.folder.write(name, whole, what="cure")
    assert store.file(key, "links.txt") == whole
    with pytest.raises(StoreError, match=r"has no file 'model'; it has links\.txt"):
        store.file(key, "model")
    with pytest.raises(StoreError, match="no finished trial"):
        store.record("0" * 16)


# -- states -----------------------------------------------------------------------------------------------


def test_a_state_comes_back(url: str, trials: list[Trial]) -> None:
    store, item = RunStore(url), trials[0].key
    assert store.state(item) is None
    store.save_state(item, b"x\ny")
    assert store.state(item) == b"x\ny"


def test_tidying_removes_temporaries_and_states_of_finished_trials_only(url: str, trials: list[Trial]) -> None:
    store = RunStore(url)
    add(store, trials[0])
    for trial in trials:
        store.save_state(trial.key, b"1")
    for inside in ("", "trials/", "files/", "state/"):
        store.folder.write(f"{inside}.x.12345678.tmp", b"half", what="left")
    before = {part: store.folder.names(part) for part in ("trials", "files")}
    store.tidy()
    assert store.folder.names("state") == sorted(trial.key for trial in trials[1:])
    assert {part: store.folder.names(part) for part in ("trials", "files")} == before
    for inside in ("", "trials/", "files/", "state/"):
        assert store.folder.size(f"{inside}.x.12345678.tmp") is None


# -- the description --------------------------------------------------------------------------------------


def test_a_description_comes_back_and_another_study_is_refused(url: str) -> None:
    store = RunStore(url)
    assert store.description() is None
    here = Description(recipe={"name": "a", "seeds": {"count": 2}, "rates": (0.1, 0.2)}, fingerprint="1", threads=1)
    store.describe(here)
    result = store.description()
    assert result is not None
    result.refuse_other(here, url)  # a tuple and the list that it became in a file are the same
    other = replace(here, recipe={"name": "a", "seeds": {"count": 3}, "rates": (0.1,), "more": None})
    said = r"seeds.count is 2 there and 3 here; rates is \[0.1, 0.2\] there and \[0.1\] here"
    with pytest.raises(StoreError, match=said) as refused:
        result.refuse_other(other, url)
    assert "--out" in str(refused.value)
    with pytest.raises(StoreError, match="the data have changed"):
        result.refuse_other(replace(here, fingerprint="2"), url)
    with pytest.raises(StoreError, match=r"begun with softknee .* and this is 99"):
        result.refuse_other(replace(here, softknee="99"), url)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "Expecting value"),
        (b'{"format": "softknee study", "sch', "Unterminated"),
        (b"\xff\xfe", "codec"),
        (b"[]", "describes no study"),
        (b'{"format": "else"}', "describes no study"),
        (b'{"format": "softknee study", "schema": 2}', "schema 2"),
        (b'{"format": "softknee study", "schema": 1, "recipe": []}', "no valid 'recipe'"),
        (Description(recipe={}, fingerprint="", threads=0).to_json(), "no valid 'threads'"),
    ],
    ids=["empty", "cut", "bytes", "list", "foreign", "schema", "recipe", "threads"],
)
def test_a_damaged_description_is_refused_with_the_cure(url: str, content: bytes, said: str) -> None:
    store = RunStore(url)
    store.folder.write("study.json", content, what="damage")
    with pytest.raises(StoreError, match=said) as refused:
        store.description()
    assert "study.json" in str(refused.value)
    assert "Take it from a copy" in str(refused.value)
    assert store.folder.read("study.json") == content
