"""A trial is run: trained with every seed at once, watched, saved after any epoch, gone on with, and measured.

run.py  ->  trainer.py, training.py, hardening.py  ->  finishing.py     from a trial to its outcome
watch.py, saving.py, progress.py                                       what is told, kept and gone on from
scores.py, sites.py, replacing.py, foretelling.py                      what is measured
"""

from .run import run_trial
from .training import QUIET, Interrupted, SavedError, Watch

__all__ = ["QUIET", "Interrupted", "SavedError", "Watch", "run_trial"]
