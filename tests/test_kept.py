"""Networks of a long study are kept one by one: a run that was stopped goes on, and what does not fit is refused."""

import json
import shutil
from dataclasses import replace

import pytest
from softknee.lab.image_training import Entry, Plan

from data_files import publish_cifar, write_binary
from small_images import tiny_vggs, two_halves
from softknee.app.screen import command_line
from softknee.errors import ParameterError
from softknee.files import WriteError
from softknee.lab import distilling, rates
from softknee.lab.kept import Kept
from softknee.measure.record import Record, RecordError

PLAN = Plan(epochs=2, batch=8, learning_rate=0.02, crop=0, every=1)
RATE = rates.Settings(
    weights=(0.0, 2.0),
    seeds=(0, 1),
    baselines=(Entry(title="ReLU", name="relu"),),
    coded_images=2,
    plan=PLAN,
    device="cpu",
)
DISTIL = distilling.Settings(
    teacher="vgg13", student="vgg8", entries=distilling.choose_entries(["relu"]), seeds=(0, 1), plan=PLAN, device="cpu"
)
STUDIES = {"rate": (rates, RATE, 6), "distil": (distilling, DISTIL, 3)}


@pytest.fixture(scope="module", autouse=True)
def _tiny():
    with tiny_vggs():
        yield


class StopAfter:
    """Ends a run, as Ctrl-C does, in the epoch after so many."""

    def __init__(self, epochs):
        self.left = epochs

    def __call__(self, _):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


@pytest.fixture(scope="module", params=list(STUDIES))
def stopped(request, _tiny, tmp_path_factory):
    """A study, the folder that a run left which was stopped before the last network, and the record of a whole run."""
    room, settings, networks = STUDIES[request.param]
    folder = tmp_path_factory.mktemp(request.param) / "kept"
    with pytest.raises(KeyboardInterrupt):
        room.run(settings, command="-", data=two_halves(8), keep=folder, advance=StopAfter(2 * networks - 1))
    assert len(list(folder.glob("*.json"))) == networks - 1
    return room, settings, folder, room.run(settings, command="-", data=two_halves(8))


def without_times(record):
    return [{name: value for name, value in row.items() if name != "time"} for row in record.rows]


@pytest.fixture
def folder(stopped, tmp_path):
    return shutil.copytree(stopped[2], tmp_path / "kept")


def test_a_stopped_run_goes_on_and_finds_the_same(stopped, folder):
    room, settings, _, whole = stopped
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    seen = []
    record = room.run(settings, command="-", data=two_halves(8), keep=folder, advance=seen.append)
    assert without_times(record) == without_times(whole)
    assert record.settings == whole.settings
    assert len(seen) == room.steps(settings)
    assert all(path.stat().st_mtime_ns == then for path, then in times.items())  # none of these was trained again
    assert len(list(folder.iterdir())) == len(times) + 1


def test_what_a_run_beside_this_one_finds_is_not_sought_again(tmp_path):
    mine, other = (Kept(tmp_path, kind="study rate", settings={}, names=["relu", "gelu"]) for _ in range(2))
    assert mine.get("relu") is None
    other.put("relu", {"accuracy": 90.0})
    said = []
    found = mine.found("relu", lambda: pytest.fail("trained again"), advance=lambda: said.append(1), steps=3)
    assert (dict(found), len(said)) == ({"accuracy": 90.0}, 3)
    assert mine.get("gelu") is None


def test_other_settings_are_refused(stopped, folder):
    room, settings, _, _ = stopped
    with pytest.raises(ParameterError, match=r"trained with epochs = 2, and 3 is asked now\. Name another folder"):
        room.run(replace(settings, plan=replace(PLAN, epochs=3)), command="-", data=two_halves(8), keep=folder)
    with pytest.raises(ParameterError, match="trained with training_images = 8, and 12"):
        room.run(settings, command="-", data=two_halves(12), keep=folder)


def test_another_machine_is_refused_unless_all_is_there(stopped, folder):
    room, settings, _, _ = stopped
    for path in folder.glob("*.json"):
        part = json.loads(path.read_text())
        part["versions"]["torch"], part["settings"]["device"] = "1.0", "cuda"
        part["hardware"]["gpu"] = "NVIDIA H200"
        path.write_text(json.dumps(part))
    with pytest.raises(ParameterError, match=r"NVIDIA H200 with torch 1\.0, and what is missing \(1 of \d\)"):
        room.run(settings, command="-", data=two_halves(8), keep=folder)
    record = room.run(replace(settings, seeds=(0,)), command="-", data=two_halves(8), keep=folder)
    assert (record.hardware.gpu, record.versions.torch, record.settings["device"]) == ("NVIDIA H200", "1.0", "cuda")
    assert Record.from_json(record.to_json()) == record


def test_a_damaged_finding_is_named(stopped, folder):
    room, settings, _, _ = stopped
    path = min(folder.glob("*.json"))
    path.write_text(path.read_text()[:-20])
    with pytest.raises(RecordError, match=f"ends too early.*Delete '{path}' to train that network again"):
        room.run(settings, command="-", data=two_halves(8), keep=folder)
    path.unlink()
    room.run(settings, command="-", data=two_halves(8), keep=folder)
    assert path.exists()


def test_a_record_of_something_else_is_no_finding(stopped, folder):
    room, settings, _, whole = stopped
    path = max(folder.glob("*.json"))
    whole.write(path)
    with pytest.raises(ParameterError, match="is no finding of this study"):
        room.run(settings, command="-", data=two_halves(8), keep=folder)


@pytest.mark.parametrize("stopped", ["distil"], indirect=True)
def test_students_have_one_teacher(stopped, folder):
    room, settings, _, _ = stopped
    weights = folder / "teacher.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(RecordError, match="are damaged, and 'teacher' cannot be trained again"):
        room.run(settings, command="-", data=two_halves(8), keep=folder)
    weights.unlink()
    with pytest.raises(RecordError, match="are not there, and 'teacher' cannot be trained again"):
        room.run(settings, command="-", data=two_halves(8), keep=folder)
    weights.write_bytes(content)
    path = folder / "relu-seed-0.json"
    part = json.loads(path.read_text())
    part["rows"][0]["taught_by"] = "0" * 64
    path.write_text(json.dumps(part))
    with pytest.raises(RecordError, match="learned from another teacher"):
        room.run(settings, command="-", data=two_halves(8), keep=folder)


def test_a_folder_that_cannot_be_made(tmp_path):
    with pytest.raises(WriteError, match="could not be made"):
        rates.run(RATE, command="-", data=two_halves(8), keep=tmp_path / "not" / "there")


def test_the_command_keeps_beside_its_record(softknee, tmp_path, monkeypatch):
    publish_cifar(monkeypatch, "cifar-10", write_binary(tmp_path / "data", "cifar-10"))
    monkeypatch.setenv("SOFTKNEE_DATA", str(tmp_path / "data"))
    place, parts = tmp_path / "rate.json", tmp_path / "rate.json.parts"
    asked = ("study", "rate", "--smoke", "--weights", "0.006", "--json", str(place))
    real = rates.measure

    def stopping(*args, **kwargs):
        if len(list(parts.glob("*.json"))) == 2:
            raise KeyboardInterrupt
        return real(*args, **kwargs)

    monkeypatch.setattr("softknee.lab.rates.measure", stopping)
    code, _, err = softknee(*asked)
    assert code == 130
    assert f"What was trained to its end is kept in '{parts}'. The same command goes on from there." in err
    assert len(list(parts.glob("*.json"))) == 2
    assert not place.exists()
    code, _, err = softknee(*asked[:-2])
    assert code == 130
    assert "Stopped. Nothing was kept: name a file with --json" in err
    monkeypatch.setattr("softknee.lab.rates.measure", real)
    code, _, err = softknee(*asked)
    assert code == 0, err
    assert place.exists()
    assert not parts.exists()
    own = tmp_path / "own"
    code, _, err = softknee(*asked, "--keep", str(own))
    assert code == 0, err
    assert len(list(own.glob("*.json"))) == 3  # one's own folder stays


@pytest.mark.parametrize("typed", [["--keep", "my parts"], ["--keep=my parts"], []])
def test_the_record_names_a_command_that_trains_again(typed, monkeypatch):
    monkeypatch.setattr("sys.argv", ["softknee", "study", "rate", *typed, "--json", "a b.json"])
    assert command_line() == "softknee study rate --json 'a b.json'"
