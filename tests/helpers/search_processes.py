"""A search in a process of its own, for tests that kill it."""

import os
from multiprocessing.connection import Connection

from softknee.lab.searching import search


def run_search(writer: Connection, recipe: str, out: str, processes: int) -> None:
    """Each line of its report goes to the writer."""
    os.environ["OMP_NUM_THREADS"] = "1"
    search(recipe, out=out, resume=True, processes=processes, report=writer.send)
