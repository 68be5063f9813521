"""One process at a time on one study: on a disk by a lock of the system, elsewhere by a lease."""

import json
import os
import time
from pathlib import Path

import pytest

from softknee.files import WriteError
from softknee.lab.studies.store import Folder, StudyBusyError, StudyLock


def test_a_lock_is_given_back(tmp_path: Path) -> None:
    for _ in range(2):
        with StudyLock(Folder(tmp_path / "study")), pytest.raises(StudyBusyError, match="Process"):
            StudyLock(Folder(tmp_path / "study"))
    assert os.listdir(tmp_path / "study") == [".lock"]


def test_a_place_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="No study can be kept in"):
        StudyLock(Folder(tmp_path / "file" / "study"))


def test_a_lease_keeps_others_out_and_is_renewed_and_removed(tmp_path: Path) -> None:
    folder = Folder(f"memory://{tmp_path.name}/study")
    with StudyLock(folder, renew_after=0.02) as lock:
        first = json.loads(folder.read(".lease") or b"")
        with pytest.raises(StudyBusyError, match=r"Process .* nothing was changed.* free again in 5 min"):
            StudyLock(folder)
        end = time.monotonic() + 600
        while json.loads(folder.read(".lease") or b"")["sign_of_life"] == first["sign_of_life"]:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert json.loads(folder.read(".lease") or b"")["owner"] == first["owner"]
        lock.check()
    assert folder.read(".lease") is None


@pytest.mark.parametrize("left", [b"", b"\xff", b'{"sign_of_life": "soon"}'], ids=["empty", "bytes", "words"])
def test_a_lease_that_nobody_renews_is_taken_over(tmp_path: Path, left: bytes) -> None:
    folder = Folder(f"memory://{tmp_path.name}/study")
    folder.write(".lease", left, what="damage")
    with StudyLock(folder):
        assert json.loads(folder.read(".lease") or b"")["pid"] == os.getpid()


def test_whoever_was_taken_over_stops_and_leaves_the_new_lease_alone(tmp_path: Path) -> None:
    folder = Folder(f"memory://{tmp_path.name}/study")
    asleep = StudyLock(folder, renew_after=0.2)
    with StudyLock(folder, stale_after=0.0):
        end = time.monotonic() + 600
        while not asleep.lost:
            assert time.monotonic() < end
            time.sleep(0.02)
        with pytest.raises(StudyBusyError, match="taken over"):
            asleep.check()
        held = folder.read(".lease")
        asleep.close()
        assert folder.read(".lease") == held
    assert folder.read(".lease") is None
