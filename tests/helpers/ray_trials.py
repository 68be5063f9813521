"""A trial for the tests of the Ray engine: the real one, which says where it runs and waits while it is told to."""

import os
import time
from pathlib import Path
from typing import Any

from softknee.lab.studies.running import run_trial


def told_trial(trial: Any, *, base: str, **others: Any) -> Any:
    """Write down the trial, its node and its process; wait as long as the file "hold" is there; then run it."""
    import ray

    node = ray.get_runtime_context().get_node_id()
    started = Path(base, "started", f"{trial.key} {node} {os.getpid()} {time.time_ns()}")
    started.touch()
    while Path(base, "hold").exists():
        time.sleep(0.05)
    return run_trial(trial, base=base, **others)
