"""A trial that was stopped after any epoch and gone on with gives the same bits as one that was not."""

from dataclasses import replace

import pytest

from softknee.lab.studies.running import Interrupted, SavedError, run_trial
from softknee.lab.studies.running.training import unpack
from trial_models import examples, trial

DATA = examples()
DROPOUT = {"arguments": {"p": 0.3}}


class Keeping:
    """Keeps the state after every epoch, and stops the trial after so many steps."""

    def __init__(self, *, stop_after: int | None = None) -> None:
        self.saved: list = []
        self.epochs: list[tuple[int, int]] = []
        self.steps, self.stop_after = 0, stop_after

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.stop_after:
            raise Interrupted("enough")

    def epoch(self, done, total, save) -> None:
        self.epochs.append((done, total))
        self.saved.append(save())


def same(ours, theirs) -> bool:
    """But for the time that it took."""
    return replace(ours.outcome, seconds=0.0) == replace(theirs.outcome, seconds=0.0) and ours.files == theirs.files


BARE = {"measures": (), "count": 2}
FEW = {**BARE, "epochs": 3}
OWN = {"activation_optimizer": "adam", "activation_learning_rate": 0.01}


@pytest.mark.parametrize(
    "asked",
    [
        trial("srelu", optimizer="adamw", select="best_val", learn=True, clip=1.0, schedule="cosine", **DROPOUT),
        trial("smelu", optimizer="sgd", momentum=0.9, schedule="linear", warmup=0.2, **DROPOUT, **FEW),
        trial("lambda_gelu", optimizer="adamw", harden=True, learn=True, schedule="cosine", **DROPOUT, **BARE),
        trial("leaky_smelu", optimizer="sgd", momentum=0.9, harden=True, learn=True, select="best_val", **BARE),
        trial("srelu", optimizer="sgd", learn=True, harden=True, schedule="linear", **DROPOUT, **OWN, **BARE),
        trial("srelu", optimizer="sgd", learn=True, harden=True, schedule="linear", engine="loop", **OWN, **BARE),
        trial("smelu", kind="tune", select="best_val", share_init=True, share_order=True, keep=(), **DROPOUT, **FEW),
        trial("smelu", engine="loop", harden=True, learn=True, **BARE),
        trial("smelu", engine="loop", select="best_val", optimizer="sgd", momentum=0.9, **DROPOUT, **FEW),
        trial("entropic_spline", engine="loop", values={"every": 4}, learn=True, **FEW),
        trial("smelu", build="trial_models:explosive", select="best_val", **FEW),
        trial("relu", build="trial_models:normed", select="best_val", **FEW),
    ],
    ids=[
        "adamw best", "sgd", "adamw hardened", "sgd hardened", "sgd and adam", "loop, sgd and adam", "tuning",
        "loop hardened", "loop best", "loop with EAFO steps", "one diverges", "batch norm",
    ],
)  # fmt: skip
def test_going_on_after_every_epoch_gives_the_same_bits(asked):
    watch, epochs = Keeping(), asked.training.epochs
    whole = run_trial(asked, examples=DATA, watch=watch)
    assert watch.epochs == [(done, epochs) for done in range(1, epochs + 1)]
    assert watch.steps == 5 * epochs
    for saved in watch.saved:
        again = run_trial(asked, examples=DATA, saved=saved)
        assert same(again, whole)
        # The time of the first part is in it; what the rest takes is another time at each run.
        assert again.outcome.seconds > unpack(saved, of=asked.key)["progress"]["seconds"] > 0


def test_looking_on_changes_nothing():
    asked = trial(harden=True, learn=True, **DROPOUT)
    assert same(run_trial(asked, examples=DATA, watch=Keeping()), run_trial(asked, examples=DATA))


def test_an_interruption_stops_after_the_step_and_what_was_saved_goes_on():
    asked = trial(select="best_val")
    watch = Keeping(stop_after=13)
    with pytest.raises(Interrupted):
        run_trial(asked, examples=DATA, watch=watch)
    assert (watch.steps, len(watch.saved)) == (13, 2)
    assert same(run_trial(asked, examples=DATA, saved=watch.saved[-1]), run_trial(asked, examples=DATA))


def test_a_state_that_is_not_whole_or_of_another_trial_is_refused():
    asked = trial(epochs=1)
    watch = Keeping()
    run_trial(asked, examples=DATA, watch=watch)
    saved = watch.saved[0]
    newer = saved.replace(b'"torch": "', b'"torch": "9')
    for damaged in (saved[:-7], b"", b"\n", saved[:40] + bytes([saved[40] ^ 1]) + saved[41:], saved + b"!", newer):
        with pytest.raises(SavedError, match=f"damaged, or not of the trial {asked.key}"):
            run_trial(asked, examples=DATA, saved=damaged)
    with pytest.raises(SavedError, match="begins anew"):
        run_trial(trial(epochs=2), examples=DATA, saved=saved)
