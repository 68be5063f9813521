"""What is told and kept while a study runs: progress with the time left, and the state of a trial now and then."""

import io
from functools import partial
from pathlib import Path

import pytest

from softknee.lab.studies.engine import PlainDisplay, Progress, RichDisplay, StateKeeper, Stopping, work_of
from softknee.lab.studies.running import Interrupted
from softknee.lab.studies.store import RunStore
from study_runs import TUNED, Silent, run_small, small_recipe, write_points


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_points(tmp_path)


@pytest.fixture
def run(folder: Path):
    return partial(run_small, folder)


def test_time_left_follows_from_the_work_done(run) -> None:
    trials = [item.trial for item in run(small_recipe(TUNED))]
    works = [work_of(trial) for trial in trials]
    assert set(works) == {4 * (2 + 4)}
    clock = 0.0
    display = Silent()
    progress = Progress(display, now=lambda: clock)
    progress.plan(trials)
    progress.found(trials[0])
    progress.begin(trials[1])
    assert display.statuses[-1].left is None  # before the first epoch nothing is known
    assert "left" not in display.statuses[-1].text()
    clock = 3.0
    progress.epoch(trials[1], 1, 4)
    # One epoch of 8 trials with 4 each took 3 seconds.
    assert progress.left() == pytest.approx(31 * 3.0)
    assert display.statuses[-1].text() == (
        "[2/9] relu, tuning: rate 0.01, decay 0, epoch 1 of 4; 3.0 s so far, about 1 min 33 s left"
    )
    clock = 12.0
    progress.end(trials[1], result="12 s")
    assert display.lines[-1].startswith("[2/9] relu, tuning: rate 0.01, decay 0: 12 s; 12 s so far, about 1 min 24 s")
    # A trial that an earlier run had brought to epoch 2 has two more epochs, and one of them is done.
    clock = 15.0
    progress.epoch(trials[2], 3, 4, first=2)
    assert progress.left() == pytest.approx(15.0 / 5 * (1 + 6 * 4))


def test_lines_come_at_the_end_of_trials_and_every_half_minute(run, capsys: pytest.CaptureFixture[str]) -> None:
    run(display=PlainDisplay())
    printed = capsys.readouterr().err.splitlines()
    assert [line.split(";")[0] for line in printed] == [
        "[1/3] relu: 0.2 s",
        "[2/3] smelu beta=0.5: 0.2 s",
        "[3/3] smelu beta=1: 0.2 s",
    ]
    times = iter([0.0, 10.0, 29.0, 31.0, 31.0, 50.0, 62.0, 62.0])  # asked for again when a line is written
    display = PlainDisplay(now=lambda: next(times))
    statuses = Silent()
    run(display=statuses, out="memory://half-minute")
    for _ in range(5):
        display.status(statuses.statuses[0])
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_on_a_terminal_there_is_a_bar(run) -> None:
    rich = pytest.importorskip("rich.console", reason="rich is not installed; the extra 'lab' brings it")
    screen = io.StringIO()
    run(display=RichDisplay(rich.Console(file=screen, force_terminal=True, width=120, highlight=False)))
    shown = screen.getvalue()
    assert "[2/3] smelu beta=0.5: 0.2 s" in shown  # a line that stays
    assert "[3/3] smelu beta=1" in shown
    assert "so far" in shown


def test_states_are_written_now_and_then_and_snapshots_cost_little(run, folder: Path) -> None:
    (outcome, *_) = run(out=folder / "whole")
    store, stopping, clock, saves = RunStore(folder / "study"), Stopping(), [0.0], []
    keeper = StateKeeper(
        outcome.trial,
        store=store,
        progress=Progress(Silent()),
        stopping=stopping,
        every=300.0,
        now=lambda: clock[0],
    )

    def save(epoch: int) -> bytes:
        clock[0] += 1.0  # what a snapshot costs
        saves.append(epoch)
        return b"%d" % epoch

    written = {}
    for epoch in range(1, 100):  # of 10 seconds each
        clock[0] += 10.0
        keeper.epoch(epoch, 100, lambda epoch=epoch: save(epoch))
        written[epoch] = store.state(outcome.trial.key)
    # One second in every 50 at most, which is 2 % of the time; and one more for each state that is written.
    assert 15 <= len(saves) <= 99 // 5 + 1 + 3
    changes = [epoch for epoch in range(2, 100) if written[epoch] != written[epoch - 1]]
    assert written[1] is None
    assert len(changes) == 3  # every 300 seconds
    assert all(written[epoch] == b"%d" % epoch for epoch in changes)
    keeper.step()
    stopping.asked = True
    with pytest.raises(Interrupted):
        keeper.step()
    keeper.keep()
    assert store.state(outcome.trial.key) == b"%d" % saves[-1]
    with pytest.raises(Interrupted):  # at the end of an epoch it is that epoch's state
        keeper.epoch(99, 100, lambda: save(99))
    keeper.keep()
    assert store.state(outcome.trial.key) == b"99"
