"""A search in a process of its own, for tests that kill it: it tells what it does, line by line."""

import os
from multiprocessing.connection import Connection

from softknee.lab.searching import search


def searching(lines: Connection, recipe: str, out: str, processes: int) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    search(recipe, out=out, resume=True, processes=processes, report=lines.send)
