"""A full disk: a sentence, nothing lost, and the study goes on when there is space again."""

import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from softknee.files import WriteError
from softknee.lab.studies.runner import run_study
from softknee.lab.studies.store import RunStore
from study_runs import Silent, quick_trial, results, small_recipe, write_points


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 28 KiB, in memory."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=28k", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a small disk may be mounted by root alone ({mounted.stderr.strip()})")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def study(out: Path, base: Path, *, resume: bool = False) -> int:
    done = run_study(
        small_recipe(), out=out, resume=resume, base=base, run_trial=quick_trial, display=Silent(), save_every=0.0
    )
    return len(done)


def test_a_full_disk_ends_in_a_sentence_and_loses_nothing(small_disk: Path, tmp_path: Path) -> None:
    write_points(tmp_path)
    study(tmp_path / "whole", tmp_path)
    out = small_disk / "study"
    with pytest.raises(WriteError, match=r"could not be written to '.*' \(No space left on device\).*make space"):
        study(out, tmp_path)
    store = RunStore(out)
    finished = {key: store.record(key) for key in store.finished()}
    assert 0 < len(finished) < 3
    assert not list(out.rglob("*.tmp"))
    with pytest.raises(WriteError, match="No space left on device"):  # still full: still nothing lost
        study(out, tmp_path, resume=True)
    assert {key: store.record(key) for key in store.finished()} == finished
    subprocess.run(["mount", "-o", "remount,size=1m", str(small_disk)], check=True)
    assert study(out, tmp_path, resume=True) == 3
    assert {key: store.record(key) for key in finished} == finished
    assert results(out) == results(tmp_path / "whole")


def test_a_file_that_may_not_grow_ends_in_a_sentence_and_loses_nothing(tmp_path: Path) -> None:
    write_points(tmp_path)
    study(tmp_path / "whole", tmp_path)
    sizes = sorted(path.stat().st_size for path in (tmp_path / "whole" / "trials").iterdir())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The largest record does not fit; what comes before it does.
    resource.setrlimit(resource.RLIMIT_FSIZE, (sizes[-1] - 1, before[1]))
    try:
        with pytest.raises(WriteError, match=r"record of a trial could not be written .* \(File too large\)"):
            study(tmp_path / "study", tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    store = RunStore(tmp_path / "study")
    assert len(store.outcomes()) < 3
    assert not list((tmp_path / "study").rglob("*.tmp"))
    assert study(tmp_path / "study", tmp_path, resume=True) == 3
    assert results(tmp_path / "study") == results(tmp_path / "whole")
