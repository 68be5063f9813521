"""The ledger's empirical half: what the papers found by training, beside what our studies found, with a verdict.

`statement.py` holds the rules, one file per paper its statements, `runs.py` reads the records they are judged by.
"""

from .page import page, write_page
from .runs import Runs
from .statement import Judged, Statement, find, judge, record

__all__ = ["Judged", "Runs", "Statement", "find", "judge", "page", "record", "write_page"]
