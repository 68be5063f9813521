"""A trial is run: trained with every seed at once, watched, saved after any epoch, gone on with, and measured.

run.py       from a trial to its outcome
training.py  epochs, checkpoints, hardening and scores of a classifier or a regression
tasks.py     what a teacher or a price on bits adds to these
language.py  the tasks of language models, which have a training of their own
"""

from .run import run_trial
from .training import QUIET, Interrupted, SavedError, Watch

__all__ = ["QUIET", "Interrupted", "SavedError", "Watch", "run_trial"]
