"""Compiled CPU kernels of a definition: C text that we printed, built once by the machine's compiler and kept on disk.

The first large call of a definition builds its library, in about half a second; later ones, also of other processes,
load it. Nothing here makes a call fail: what does not work is a reason that `sk.explain` gives, and another path runs.

Environment variables: SOFTKNEE_CC names the compiler (0 switches compiled kernels off), SOFTKNEE_CACHE the folder.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import os
import platform
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..errors import DefinitionError
from ..spec import Activation
from ..spec.activation import once_per_definition
from . import c_source
from .layout import find_pattern, storage_order
from .triton_source import Source

# Below this a call is mostly Python; plain operations serve it, and no compiler is started for it. The rule looks at
# the size alone, so that the bits of a result do not depend on what was compiled before.
SMALLEST = 1 << 12
SHORTEST = 16  # a row of fewer elements does not fill a vector
_PARALLEL_FROM = 1 << 15
_MOST_PARAMS = 32
_SECONDS = 60.0
_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = (
    "-O3",
    "-std=gnu11",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp-simd",
    "-w",
    "-fPIC",
    "-shared",
    "--param=vect-max-peeling-for-alignment=0",  # in a short loop the first elements would take as long as the rest
    "-pipe",
)
_NATIVE = {
    "x86_64": ("-march=native", "-mprefer-vector-width=512"),
    "aarch64": ("-mcpu=native",),
    "arm64": ("-mcpu=native",),
}


class CompileError(Exception):
    """No library could be built or loaded; the message is a part of a sentence."""


def why_not(act: Activation, x: Tensor, params: Sequence[Tensor]) -> str:
    """An empty string where the compiled kernels can compute this call, else why not; builds them at the first call."""
    if reason := why_not_for(x):
        return reason
    pattern = find_pattern(x, params)
    if pattern is None or (pattern.channels > 1 and pattern.inner < SHORTEST):
        return f"compiled kernels take one number for each parameter, or for a row of at least {SHORTEST} elements"
    library = _library(act)
    return library if isinstance(library, str) else ""


def why_not_for(x: Tensor) -> str:
    """The same as far as it lies in the input alone."""
    if x.dtype not in c_source.TYPES:
        return f"compiled kernels compute in float32, and the input is {x.dtype}"
    if x.numel() < SMALLEST:
        return f"compiled kernels serve tensors of {SMALLEST:,} elements and more"
    return ""


def may_serve(x: Tensor) -> bool:
    """Whether compiled kernels could take such a tensor if they were asked."""
    return x.is_cpu and x.dtype in c_source.TYPES and x.numel() >= SMALLEST


class CompiledPlan:
    """A call of the compiled kernels on tensors of one layout.

    `sources` says what stands for each parameter, by default a tensor with its value. The tensors of a call are those
    of the parameters, in their order, and then the anchors; `numbers` are for the parameters that are numbers.
    """

    index = None  # of a GPU
    forward_launch = None  # a C function has nothing to keep

    def __init__(self, act: Activation, x: Tensor, params: Sequence[Tensor], sources: tuple[Source, ...] = ()) -> None:
        library, pattern = _library(act), find_pattern(x, params)
        assert pattern is not None
        assert not isinstance(library, str)
        self.library, self.pattern = library, pattern
        self.flat = pattern.channels == 1
        self.sources = sources or (None,) * len(act.params)
        lifted = [p.constraint.lifted for p in act.params]
        self.raw = [source is not None for source in itertools.compress(self.sources, lifted)]
        self.dense = storage_order(x) is not None
        self.shape = tuple(x.shape)
        self.n = x.numel()
        rows, steps = pattern.outer * pattern.channels, sum((p.numel() != 1) << i for i, p in enumerate(params))
        self.layout = c_source.TYPES.index(x.dtype), rows, pattern.channels, pattern.inner, steps
        self.scratch = ctypes.c_double * (len(act.params) * rows * -(-pattern.inner // c_source.CHUNK))

    def forward(
        self, x: Tensor, tensors: Sequence[Tensor], numbers: Sequence[float] = (), out: Tensor | None = None
    ) -> Tensor:
        """The value, in a tensor that lies in memory as x does (or in `out`, which may be x itself)."""
        x = x if self.dense else x.contiguous()
        y = torch.empty_like(x) if out is None else out
        held, pointers = self._parameters(tensors, numbers)
        self.library.forward(x.data_ptr(), y.data_ptr(), *self.layout, threads_for(self.n), *pointers)
        del held
        return y

    def backward(
        self,
        g: Tensor,
        x: Tensor,
        tensors: Sequence[Tensor],
        needs: Sequence[bool],
        numbers: Sequence[float] = (),
    ) -> list[Tensor]:
        """The gradients that are needed: of x, and of each parameter the sums."""
        x = x if self.dense else x.contiguous()
        if g.stride() != x.stride() or g.dtype != x.dtype:
            g = torch.empty_like(x).copy_(g)
        dx = torch.empty_like(x) if needs[0] else None
        target = None if dx is None else dx.data_ptr()
        grads = [] if dx is None else [dx]
        held, pointers = self._parameters(tensors, numbers)
        rest = *self.layout, threads_for(self.n), *pointers
        if not any(needs[1:]):
            self.library.backward_x(g.data_ptr(), x.data_ptr(), target, None, *rest)
            return grads
        sums = self.scratch()
        self.library.backward_all(g.data_ptr(), x.data_ptr(), target, ctypes.addressof(sums), *rest)
        del held
        wanted = [(i, p) for i, (p, need) in enumerate(zip(tensors, needs[1:], strict=False)) if need]
        if self.flat:
            return grads + [torch.full(p.shape, sums[i], dtype=p.dtype) for i, p in wanted]
        totals = torch.frombuffer(sums, dtype=torch.float64)[: len(self.sources) * self.pattern.channels]
        totals = totals.view(len(self.sources), -1)
        return grads + [self.pattern.restore(totals[i], p) for i, p in wanted]

    def _parameters(self, tensors: Sequence[Tensor], numbers: Sequence[float]) -> tuple[Any, list[int | None]]:
        """What holds the parameters as float32, and the pointers to them and to the anchors that there may be."""
        if numbers:
            held = (ctypes.c_float * len(numbers))(*numbers)
            first = ctypes.addressof(held)
            return held, [*range(first, first + 4 * len(numbers), 4), *[None] * len(self.raw)]
        held = [tensor.float() if self.flat else self.pattern.flat(tensor).float() for tensor in tensors]
        pointers = [tensor.data_ptr() for tensor in held]
        count = len(self.sources)
        anchors = iter(pointers[count:])
        return held, [*pointers[:count], *[next(anchors) if raw else None for raw in self.raw]]


# -- libraries ------------------------------------------------------------------------------------


class _Process:
    """What belongs to this process: a lock around compiling, which compiler hung, and whether it is a fork."""

    def __init__(self, *, forked: bool = False) -> None:
        self.lock = threading.RLock()
        self.hung = ""  # one wait is enough
        # OpenMP's threads do not survive a fork, and waiting for them would never end.
        self.forked = forked


_process = _Process()


def _start_child() -> None:
    global _process
    _process = _Process(forked=True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_child)


def threads_for(n: int) -> int:
    """How many threads share so many elements."""
    return torch.get_num_threads() if n >= _PARALLEL_FROM and not _process.forked else 1


def _library(act: Activation) -> ctypes.CDLL | str:
    """The library of a definition, or why there is none."""
    with _process.lock:
        return _build(act)


@once_per_definition
def _build(act: Activation) -> ctypes.CDLL | str:
    if len(act.params) > _MOST_PARAMS:
        return f"compiled kernels take at most {_MOST_PARAMS} parameters"
    library = load(lambda: c_source.kernels(act))
    if isinstance(library, str):
        return library
    pointer = ctypes.c_void_p
    anchors = sum(p.constraint.lifted for p in act.params)
    sizes = [ctypes.c_int, *[ctypes.c_int64] * 3, *[ctypes.c_uint] * 2]
    rest = [*sizes, *[pointer] * (len(act.params) + anchors)]
    for name in ("forward", "backward_x", *(["backward_all"] if act.params else [])):
        function = getattr(library, name)
        function.argtypes = [*[pointer] * (2 if name == "forward" else 4), *rest]
        function.restype = None
    return library


def load(text: Callable[[], str]) -> ctypes.CDLL | str:
    """The library of a text that begins with `c_source.frame()`, compiled where it is not in the cache; or why not."""
    try:
        with _process.lock:
            library = ctypes.CDLL(str(_compiled_file(compile_command(), text())))
    except (CompileError, DefinitionError) as error:
        return str(error)
    except (OSError, RuntimeError) as error:  # a folder that cannot be written or found, a library that does not load
        return f"the compiled kernels could not be stored or loaded: {error}"
    ctypes.c_void_p.in_dll(library, "parallel").value = _parallel()
    return library


@functools.cache
def _parallel() -> int | None:
    """The address of GOMP_parallel in the OpenMP that torch has loaded: one pool of threads for both, or None."""
    ending = "dylib" if sys.platform == "darwin" else "so"
    try:
        function = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / f"libtorch_cpu.{ending}")).GOMP_parallel
    except (OSError, AttributeError):
        return None
    return ctypes.cast(function, ctypes.c_void_p).value


# -- compiling --------------------------------------------------------------------------------------------


def compile_command() -> tuple[str, ...]:
    """The compiler with its flags; it reads from standard input and takes `-o FILE` in addition."""
    choice = os.environ.get("SOFTKNEE_CC")
    if choice is not None and choice in ("", "0"):
        raise CompileError("SOFTKNEE_CC=0 switches compiled kernels off")
    if os.name != "posix":
        raise CompileError(f"compiled kernels are not made for {platform.system()}")
    names = _COMPILERS if choice is None else (choice,)
    compiler = next(filter(None, map(shutil.which, names)), None)
    if compiler is None:
        raise CompileError(f"no C compiler was found ({', '.join(names)})")
    return (compiler, *_FLAGS, *_NATIVE.get(platform.machine(), ()), "-x", "c", "-")


@functools.cache
def _processor() -> str:
    """What code for "native" depends on."""
    lines = [platform.machine(), platform.processor()]
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        first = ""
    keys = (
        "vendor",
        "model",
        "cpu family",
        "stepping",
        "flags",
        "features",
        "cpu implementer",
        "cpu part",
        "cpu variant",
    )
    return "\n".join([*lines, *(line for line in first.splitlines() if line.lower().startswith(keys))])


def cache_folder() -> Path:
    """Where libraries are kept: SOFTKNEE_CACHE, or softknee in the user's cache folder."""
    if chosen := os.environ.get("SOFTKNEE_CACHE"):
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "softknee"


def _compiled_file(command: Sequence[str], text: str) -> Path:
    """The library of this text in the cache folder, compiled if it is not there, or not as it was written."""
    binary = os.stat(command[0])
    parts = [text, *command, str(binary.st_size), str(binary.st_mtime_ns), _processor()]
    folder = cache_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_own(folder, folder.stat())
    path = folder / f"{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()}.so"
    if not _is_whole(path):
        if _process.hung:
            raise CompileError(_process.hung)
        _compile(command, text, path)
    return path


def _check_own(path: Path, status: os.stat_result) -> None:
    """Refuse what another user made or can change: it would run in this process."""
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o022:
        raise CompileError(f"{path} belongs to another user or can be written by one")


def _is_whole(path: Path) -> bool:
    """Whether the file is there and ends with the checksum of what stands before it."""
    try:
        _check_own(path, path.lstat())
        content = path.read_bytes()
    except FileNotFoundError:
        return False
    return len(content) > 32 and hashlib.sha256(content[:-32]).digest() == content[-32:]


def _compile(command: Sequence[str], text: str, path: Path) -> None:
    """Compile into a file of this process's own and then give it its name: several processes may do so at once."""
    number, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    os.close(number)
    target = Path(name)
    try:
        _run([*command, "-o", name], text)
        content = target.read_bytes()
        if not content:
            raise CompileError(f"the compiler {command[0]} wrote nothing")
        target.write_bytes(content + hashlib.sha256(content).digest())
        target.chmod(0o700)
        target.replace(path)
    finally:
        target.unlink(missing_ok=True)


def _run(command: Sequence[str], text: str) -> None:
    # In a session of its own: a compiler is several processes, which end together.
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    try:
        complaints = process.communicate(text, timeout=_SECONDS)[1]
    except subprocess.TimeoutExpired:
        _process.hung = f"the compiler {command[0]} did not end in {_SECONDS:g} seconds"
        raise CompileError(_process.hung) from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        lines = [line for line in complaints.splitlines() if "error" in line] or complaints.splitlines()
        raise CompileError(f"the compiler {command[0]} failed: {lines[0] if lines else f'exit {process.returncode}'}")
