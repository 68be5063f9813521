"""A study that is killed loses no finished trial, and goes on to the same bits as one that never was."""

import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from softknee.lab.studies.runner import run_study
from softknee.lab.studies.store import RunStore, StudyBusyError
from study_processes import StudyProcesses
from study_runs import REAL, RECIPE, Silent, contents, quick_trial, results, small_recipe, write_points

KILLS, STAGES = 10, 3


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StudyProcesses]:
    folder = tmp_path_factory.mktemp("studies")
    write_points(folder)
    started = StudyProcesses(folder)
    yield started
    started.close()


def check_opens(out: Path, before: dict[str, bytes]) -> dict[str, bytes]:
    """Every finished trial can be read, and none that was finished before has gone or changed; what is there now."""
    store = RunStore(out)
    for key in store.finished():
        for name in store.record(key).settings["store"]["files"]:
            store.file(key, name)
    now = {name: content for name, content in contents(out).items() if not Path(name).name.startswith(".")}
    finished = {name for name in before if name.split("/")[1].split(".")[0] in store.finished()}
    assert {name: now.get(name) for name in finished} == {name: before[name] for name in finished}
    gone = {name for name in before if name.startswith("trials")} - set(now)
    assert not gone
    return now


@pytest.mark.slow
def test_killed_at_ten_random_moments_it_ends_in_the_same_bits(processes: StudyProcesses, tmp_path: Path) -> None:
    processes.start(out=str(tmp_path / "whole"), recipe=REAL, run="real")
    start = time.monotonic()
    code, printed = processes.wait()
    longest = time.monotonic() - start
    assert code == 0, printed
    expected, moments = results(tmp_path / "whole"), random.Random(20)
    assert len([name for name in expected if name.startswith("trials")]) == 6
    kills = rounds = stages = 0  # stages: kills that met the study at another place than the one before
    while kills < KILLS or stages < STAGES:
        rounds += 1
        out, seen = tmp_path / f"round {rounds}", {}
        while True:
            number = processes.start(out=str(out), recipe=REAL, run="real", resume=True)
            if kills < KILLS or stages < STAGES:
                time.sleep(moments.uniform(0.0, longest))
                with suppress(ProcessLookupError):  # it may have come to its end
                    os.kill(number, signal.SIGKILL)
            code, printed = processes.wait()
            assert code in (0, -signal.SIGKILL), printed
            # How fast the machine is may change at any time: later kills where they met nothing new, earlier ones
            # where they came too late.
            if code == 0:
                longest *= 0.8
                break
            kills += 1
            before, seen = seen, check_opens(out, seen)
            stages += len(seen) > len(before)
            longest *= 1.0 if len(seen) > len(before) else 1.25
            assert kills < 10 * KILLS, "no study gets anywhere"
        assert results(out) == expected
        assert not (out / "state").exists() or not list((out / "state").iterdir())
        assert not list(out.rglob("*.tmp"))


@pytest.mark.slow
def test_killed_at_every_single_call_that_writes_it_loses_nothing(processes: StudyProcesses, tmp_path: Path) -> None:
    small = RECIPE.replace("epochs: 4", "epochs: 2").replace("[relu, {name: smelu, beta: [0.5, 1.0]}]", "[relu]")
    code, printed = processes.run(out=str(tmp_path / "whole"), recipe=small, run="quick", crash_at=0)
    assert code == 0, printed
    calls = int(printed.rpartition("calls: ")[2])
    expected = results(tmp_path / "whole")
    assert calls > 25
    for number in range(1, calls + 1):
        out = tmp_path / str(number)
        code, printed = processes.run(out=str(out), recipe=small, run="quick", crash_at=number)
        assert code == -signal.SIGKILL, (number, printed)
        left = check_opens(out, {})
        code, printed = processes.run(out=str(out), recipe=small, run="quick", resume=True)
        assert code == 0, (number, printed)
        check_opens(out, left)
        assert results(out) == expected, number
        assert not list(out.rglob("*.tmp")), number
        assert not list((out / "state").iterdir()), number


def until(there: Callable[[], bool]) -> None:
    """Wait for what another process does, but not for ever."""
    end = time.monotonic() + 600
    while not there():
        assert time.monotonic() < end, "the other process did not get there within ten minutes"
        time.sleep(0.02)


def worked(number: int) -> float:
    """The seconds that a process has had a processor: on a busy machine it gets no further in the others."""
    try:
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # not Linux
        return time.monotonic()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_second_process_is_told_who_works_there_and_changes_nothing(
    processes: StudyProcesses, tmp_path: Path
) -> None:
    write_points(tmp_path)
    out = tmp_path / "study"
    number = processes.start(out=str(out), recipe=RECIPE, run="slow", seconds=60)
    until(lambda: (out / "study.json").exists())
    before = contents(out) | {"study.json": (out / "study.json").read_bytes(), ".lock": (out / ".lock").read_bytes()}
    for resume in (False, True):
        with pytest.raises(StudyBusyError) as refused:
            run_study(small_recipe(), out=out, resume=resume, base=tmp_path, run_trial=quick_trial, display=Silent())
        said = str(refused.value)
        assert f"Process {number} on {socket.gethostname()} (since 20" in said
        assert "nothing was changed" in said
        assert "--out" in said
    after = contents(out) | {"study.json": (out / "study.json").read_bytes(), ".lock": (out / ".lock").read_bytes()}
    assert after == before
    os.kill(number, signal.SIGKILL)  # the system frees the lock of a process that was killed
    assert processes.wait()[0] == -signal.SIGKILL
    done = run_study(
        small_recipe(), out=out, resume=True, base=tmp_path, run_trial=quick_trial, display=Silent(), threads=1
    )
    assert len(done) == 3


LONG = RECIPE.replace("epochs: 4", "epochs: 100000")
END = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


def begun(number: int, out: Path, *, seconds: float = 0.3) -> None:
    """Wait until a study is in the middle of its training; so many seconds of work are some steps of it."""
    until(lambda: (out / ".lock").exists() and bool((out / ".lock").read_bytes()))
    start = worked(number)
    until(lambda: worked(number) > start + seconds)


@pytest.mark.parametrize("which", END, ids=lambda which: which.name)
def test_a_signal_ends_the_command_with_how_to_go_on(
    which: signal.Signals, processes: StudyProcesses, tmp_path: Path
) -> None:
    write_points(tmp_path)
    (tmp_path / "long.yaml").write_text(LONG, encoding="utf-8")
    out = tmp_path / "study"
    command = ["study", str(tmp_path / "long.yaml"), "--out", str(out), "--threads", "1"]
    for again in ([], ["--resume"]):
        number = processes.start(command=[*command, *again])
        begun(number, out)
        os.kill(number, which)
        code, printed = processes.wait()
        assert code == END[which], printed
        assert "Stopping after this step" in printed
        assert f"0 trials are finished and kept in '{out}'. Go on with: softknee study" in printed
        assert printed.rstrip().endswith("--resume")
        assert len(list((out / "state").iterdir())) == 1


def test_under_nohup_a_study_outlives_its_terminal(processes: StudyProcesses, tmp_path: Path) -> None:
    write_points(tmp_path)
    (tmp_path / "long.yaml").write_text(LONG, encoding="utf-8")
    out = tmp_path / "study"
    command = ["study", str(tmp_path / "long.yaml"), "--out", str(out), "--threads", "1"]
    number = processes.start(command=command, ignoring=[int(signal.SIGHUP)])
    begun(number, out)
    os.kill(number, signal.SIGHUP)
    begun(number, out)  # it works on
    os.kill(number, signal.SIGTERM)
    code, printed = processes.wait()
    assert code == END[signal.SIGTERM], printed


def test_a_terminal_that_closes_leaves_a_study_that_goes_on(tmp_path: Path) -> None:
    """A real one: writing to it is an error from then on, and the state is kept all the same."""
    fcntl, termios = pytest.importorskip("fcntl"), pytest.importorskip("termios")
    write_points(tmp_path)
    (tmp_path / "long.yaml").write_text(LONG, encoding="utf-8")
    out = tmp_path / "study"
    screen, terminal = os.openpty()

    def take_terminal() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # where the tests themselves run under nohup it is ignored
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    started = subprocess.Popen(
        [sys.executable, "-m", "softknee", "study", "long.yaml", "--out", str(out), "--threads", "1"],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=take_terminal,
    )
    os.close(terminal)
    closing = threading.Event()

    def show() -> None:
        """Read what the study prints, as a screen does, so that it can print on."""
        while not closing.is_set():
            if select.select([screen], [], [], 0.05)[0]:
                os.read(screen, 65536)

    shown = threading.Thread(target=show)
    shown.start()
    try:
        try:
            begun(started.pid, out, seconds=1.0)  # among them the imports of a fresh process
        finally:
            closing.set()
            shown.join()
            os.close(screen)  # the system sends SIGHUP
        assert started.wait(1200) == END[signal.SIGHUP]
    finally:
        started.kill()
        started.wait()
    assert len(list((out / "state").iterdir())) == 1
