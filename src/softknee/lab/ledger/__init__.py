"""The ledger of claims: what the papers state, a check that runs, what it measured, and the verdict.

One file per paper holds its claims, each a small function; `find` finds them, `run` runs them, `record` keeps what came
out and `page` shows it.
"""

from .entry import PAPERS, Claim, Finding, Paper, claims_of
from .page import page, write_page
from .runner import Entry, check, find, record, run

__all__ = [
    "PAPERS",
    "Claim",
    "Entry",
    "Finding",
    "Paper",
    "check",
    "claims_of",
    "find",
    "page",
    "record",
    "run",
    "write_page",
]
