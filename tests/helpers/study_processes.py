"""A process that starts studies as children of its own, each in milliseconds: torch is imported once, before the fork.

Run as a script it reads orders from its input, one JSON object in a line, forks a child for each, and writes the number
of the child's process and, when it has ended, its exit status. Tests start it with `StudyProcesses`.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Seconds: a child that does not end by itself is ended by SIGALRM, and the test fails instead of hanging.
_LONGEST = 1200


class StudyProcesses:
    """Starts the script in a folder with data, and gives it orders."""

    def __init__(self, folder: Path) -> None:
        places = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "src")]
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",  # torch's autograd does not survive a fork where it has seen a GPU
            "PYTHONPATH": os.pathsep.join(places),
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._folder = folder

    def start(self, **order: Any) -> int:
        """Start a child; its process number."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._answer())

    def wait(self) -> tuple[int, str]:
        """Wait for the child; its exit code (minus the signal that ended it), and what it printed."""
        code = int(self._answer())
        return code, (self._folder / "printed.txt").read_text(encoding="utf-8")

    def run(self, **order: Any) -> tuple[int, str]:
        self.start(**order)
        return self.wait()

    def close(self) -> None:
        self._process.communicate(timeout=_LONGEST)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process that starts studies has ended"
        return line


# -- in the script ----------------------------------------------------------------------------------------


def crash_at(number: int, place: str) -> Callable[[], int]:
    """End this process like SIGKILL before the so-manieth call that changes something on the disk below a place.

    At a call that sees a file safe, half of the file is cut off before: what was not yet safe may be lost. Returns a
    function that says how many such calls there were.
    """
    seen = 0
    real_sync = os.fsync

    def count(descriptor: int | None = None) -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            if descriptor is not None and not os.path.isdir(f"/proc/self/fd/{descriptor}"):
                os.truncate(descriptor, os.fstat(descriptor).st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        # A rename is counted when it is about to happen; the sync of the folder that follows, when it has.
        if event in ("open", "os.rename", "os.remove", "os.mkdir") and str(arguments[0]).startswith(place):
            count()

    def sync(descriptor: int) -> None:
        count(descriptor)
        real_sync(descriptor)

    os.fsync = sync
    sys.addaudithook(watch)
    return lambda: seen


def child(order: dict[str, Any]) -> int:
    """What a child does: a study through its function, or a whole command line."""
    from softknee.lab.studies.runner import run_study
    from softknee.lab.studies.running import run_trial
    from study_runs import quick_trial, small_recipe

    if "command" in order:
        from softknee.app import main

        sys.argv = ["softknee", *order["command"]]
        main()
        return 0

    def slow_trial(trial: Any, **others: Any) -> Any:
        time.sleep(order["seconds"])
        return quick_trial(trial, **others)

    kinds = {"quick": quick_trial, "real": run_trial, "slow": slow_trial}
    counted = crash_at(order["crash_at"], os.path.abspath(order["out"])) if "crash_at" in order else int
    run_study(
        small_recipe(order["recipe"]),
        out=order["out"],
        resume=order.get("resume", False),
        base=".",
        command="softknee study small",
        threads=1,
        save_every=order.get("save_every", 0.0),
        run_trial=kinds[order["run"]],
    )
    sys.stdout.write(f"calls: {counted()}\n")
    return 0


def prepare() -> None:
    """Run a study here, so that each child starts with all modules imported and all formulas derived."""
    import torch

    import softknee.app.commands  # noqa: F401
    from study_runs import REAL, write_points

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_points(Path(folder))
        with contextlib.chdir(folder):
            child({"out": "study", "recipe": REAL, "run": "real"})


def serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.fsync = lambda descriptor: None  # a process that is killed loses nothing that it has written
    prepare()
    for line in sys.stdin:
        number = os.fork()
        if number == 0:
            code = 1
            signal.alarm(_LONGEST)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            order = json.loads(line)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # where the tests themselves run under nohup it is ignored
            for number in order.pop("ignoring", []):
                signal.signal(number, signal.SIG_IGN)
            try:
                printed = os.open("printed.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(printed, 1)
                os.dup2(printed, 2)
                code = child(order)
            except SystemExit as left:
                code = left.code if isinstance(left.code, int) else 1
            except BaseException as error:
                sys.stderr.write(f"{type(error).__name__}: {error}\n")
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        answers.write(f"{number}\n")
        answers.flush()
        answers.write(f"{os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])}\n")
        answers.flush()


if __name__ == "__main__":
    serve()
