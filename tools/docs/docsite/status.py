"""The status matrix: every function of the zoo in every dtype, on every path, through every export, by trying it.

    python -m docsite.status          (in tools/docs; writes docs/status.md)

A tick is an answer of the code: the value and its gradient were computed in that dtype and lie where float64 has them,
the kernel's source was printed, the exported program gave the same numbers. For what this machine cannot run (a GPU)
the generated code is the answer; the GPU tests run that.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

import softknee as sk
from softknee.kernels.dispatch import FUSED_TYPES, triton_prints
from softknee.lab import gallery
from softknee.lab.gallery import title_of
from softknee.spec import Activation, SoftTable

from .markdown import cells
from .places import DOCS

PAGE = DOCS / "status.md"
DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
_ROOM = {"f64": 1e-12, "f32": 1e-5, "bf16": 2e-2, "f16": 3e-3}  # a few roundings of values near 4
COLUMNS = (*DTYPES, "blocks", "fused", "func", "compile", "export", "ONNX")
_X = torch.linspace(-4.0, 4.0, 60, dtype=torch.float64)


_WAYS = {"func": "torch.func", "compile": "torch.compile", "export": "torch.export", "ONNX": "ONNX"}


class Several(nn.Module):
    """Many activations on one input: one export instead of thirty."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({name: sk.nn.make(name) for name in names})

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(part(x) for part in self.parts.values())


def matrix(names: Sequence[str] | None = None) -> dict[str, dict[str, str]]:
    """For each function an answer in every column: "yes", or why not."""
    names = gallery.names() if names is None else names
    rows: dict[str, dict[str, str]] = {}
    for name in names:
        rows[name] = answers(name)
    for column, way in (("compile", _compiled), ("export", _exported), ("ONNX", _onnx)):
        for name, answer in _try_all(names, way).items():
            rows[name][column] = answer
    return rows


def answers(name: str) -> dict[str, str]:
    """What one function answers by itself: dtypes, paths and transforms."""
    act = sk.get(name)
    cpu = {key: answer(functools.partial(_computes, name, key)) for key in DTYPES}
    return {
        **cpu,
        "blocks": answer(functools.partial(_in_blocks, name)),
        "fused": _fused(act),
        "func": answer(functools.partial(_transforms, name)),
    }


def answer(check: Callable[[], bool]) -> str:
    """A check's answer in words, whatever it does."""
    try:
        return "yes" if check() else "no"
    except Exception as problem:  # the matrix says what happens, whatever it is
        return f"no ({type(problem).__name__})"


def _computes(name: str, key: str) -> bool:
    module = sk.nn.make(name)
    values, slopes = [], []
    for dtype in (DTYPES[key], torch.float64):
        # The same inputs for both: those that the coarser type can hold.
        x = _X.to(DTYPES[key]).to(dtype, copy=True).requires_grad_()
        y = module(x)
        y.sum().backward()
        assert y.dtype == dtype
        assert x.grad is not None
        values.append(y.detach().double())
        slopes.append(x.grad.double())
    near = [bool((a - b).abs().max() <= _ROOM[key] * max(1.0, float(b.abs().max()))) for a, b in (values, slopes)]
    return all(near)


def _in_blocks(name: str) -> bool:
    """A large tensor takes that path, and has the values of its parts."""
    module, x = sk.nn.make(name), torch.linspace(-4.0, 4.0, 1 << 20, dtype=torch.float64)
    near = all(torch.allclose(module(x)[place], module(x[place])) for place in (slice(0, 999), slice(-999, None)))
    return sk.explain(module, x).path == "blocks" and near


def _fused(act: Activation | SoftTable) -> str:
    if isinstance(act, SoftTable):
        return "CUDA C++, Triton"
    return "Triton" if not (why := triton_prints(act)) else f"no: {why}"


def _transforms(name: str) -> bool:
    module = sk.nn.make(name)
    slope = torch.func.vmap(torch.func.grad(lambda x: module(x)))(_X)
    x = _X.clone().requires_grad_()
    (plain,) = torch.autograd.grad(module(x).sum(), x)
    return bool(torch.allclose(slope, plain, atol=1e-10))


def _try_all(names: Sequence[str], way: Callable[[nn.Module, Tensor], Sequence[Tensor]]) -> Mapping[str, str]:
    """Try all functions in one module; where that fails, each by itself, so that the failing ones are named."""
    x = _X.float()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # exporters warn of their own parts
            whole = Several(names)
            results = way(whole, x)
            near = [torch.allclose(a, b, atol=1e-5) for a, b in zip(results, whole(x), strict=True)]
        return {name: "yes" if ok else "no" for name, ok in zip(names, near, strict=True)}
    except Exception as problem:
        if len(names) == 1:
            return {names[0]: f"no ({type(problem).__name__})"}
        return {name: _try_all([name], way)[name] for name in names}


def _compiled(module: nn.Module, x: Tensor) -> Sequence[Tensor]:
    # Whether it is traced whole is the question here; the code generators' numbers are tested in the test suite.
    return torch.compile(module, fullgraph=True, backend="eager")(x)


def _exported(module: nn.Module, x: Tensor) -> Sequence[Tensor]:
    return torch.export.export(module, (x,)).module()(x)


def _onnx(module: nn.Module, x: Tensor) -> Sequence[Tensor]:
    import onnxruntime

    program = torch.onnx.export(module, (x,), dynamo=True, verbose=False)
    assert program is not None
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return [torch.from_numpy(output) for output in session.run(None, {session.get_inputs()[0].name: x.numpy()})]


# -- the page ---------------------------------------------------------------------------------------------


def rows_of(rows: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The rows of the table."""
    return [
        f"| [{title_of(sk.get(name))}](zoo/{name}.md) | {' | '.join(_shown(answers[column]) for column in COLUMNS)} |"
        for name, answers in rows.items()
    ]


def _shown(answer: str) -> str:
    return "✓" if answer == "yes" else answer


def page(rows: Mapping[str, Mapping[str, str]]) -> str:
    """The page of the documentation."""
    head = f"| function | {' | '.join(COLUMNS)} |\n|---|{':-:|' * len(COLUMNS)}"
    table = "\n".join(rows_of(rows))
    types = ", ".join(key for key, dtype in DTYPES.items() if dtype in FUSED_TYPES)
    return f"""# Status: what runs where

<!-- made by `make docs-status`; do not edit -->

Every function of the zoo against every dtype, path and export. A tick was earned by running:

- **f64 to f16**: value and gradient in that dtype on a CPU, against float64.
- **blocks**: a large float64 tensor on a CPU is worked on in blocks that stay in the cache, as every large one is where
  there is no C compiler.
- **fused**: the language that one kernel each way is generated in for an NVIDIA GPU, for {types}. float64 on a GPU,
  ROCm and MPS take plain operations.
- **func**: `torch.func.vmap` of `torch.func.grad`, against autograd.
- **compile**, **export**, **ONNX**: `torch.compile(fullgraph=True)`, `torch.export`, and ONNX in onnxruntime, against
  eager mode.

{head}
{table}

- Modules are tried with their parameters at the defaults. Learned parameters, all granularities and functions that
  engines make pass through the same code; the tests ask them of every function (`tests/helpers` lists the subjects).
- `sk.explain(module, x)` says which path a call takes, and why.
- Compiled by inductor, on a GPU, in bf16 and under `TRITON_INTERPRET=1`: `tests/test_compile.py`, `tests/test_gpu.py`,
  `tests/test_half.py` and `tests/interpreter`.
- Other versions of torch and Python: [versions](versions.md).
- NCCL under `sk.wire.Boundary` and more than one GPU have not been run.
"""


def support(act: Activation | SoftTable) -> str:
    """What the committed page says of one function, as a sentence."""
    row = committed().get(act.name)
    if row is None:
        return "Not in the matrix yet: `make docs-status` adds it."
    good = [column for column in COLUMNS if row[column] == "✓"]
    types = ", ".join(f"`{column}`" for column in good if column in DTYPES)
    ways = ", ".join(f"`{words}`" for column, words in _WAYS.items() if column in good)
    gpu = row["fused"]
    fused = (
        f"one fused kernel each way on an NVIDIA GPU ({gpu})"
        if not gpu.startswith("no")
        else "plain operations on a GPU"
    )
    return f"On a CPU in {types}; {fused}; through {ways}."


@functools.cache
def committed() -> dict[str, dict[str, str]]:
    """The answers that stand on the committed page."""
    rows = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines() if PAGE.is_file() else ():
        if line.startswith("| ["):
            first, *others = cells(line)
            rows[first.partition("(zoo/")[2].removesuffix(".md)")] = dict(zip(COLUMNS, others, strict=True))
    return rows


if __name__ == "__main__":
    PAGE.write_text(page(matrix()), encoding="utf-8")
