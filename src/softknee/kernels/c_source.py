"""The text of the C kernels of one definition: a vectorised pass over a dense tensor each way.

A kernel works on whole vectors, the last one filled up, so that each element meets the same instructions wherever it
stands. A parameter is one number, or one for each row of the tensor. The sums of its gradient are taken over pieces of
the rows in double precision and added in the order of the pieces: the bits do not depend on the number of threads.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path

import torch

from ..spec import Activation, Constraint, Param
from ..spec.emit import PARAMETER
from ..spec.printers import Body, C, body, lift_bodies

CHUNK = 1 << 14
"""The elements of a piece, and about as many as a thread takes at a time."""

TYPES = (torch.float32, torch.bfloat16, torch.float16)
"""The types of a tensor; a kernel gets the place of its type in this list. All are computed in float32."""

# A number as Python writes it, and not the end of a name: in C it needs a suffix to be a float.
_NUMBER = re.compile(r"(?<![\w.])(\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+)")
_PAIR = re.compile(r"(\w+), (\w+) = (\w+_pair)\((.*)\)")


@functools.cache
def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def frame() -> str:
    """What every compiled kernel begins with: mathematics, types of tensors, threads."""
    return _file("c_math.h") + _file("c_frame.h")


def kernels(act: Activation) -> str:
    """The functions `forward`, `backward_x` (the gradient of x alone) and `backward_all` (every parameter's, too)."""
    text = [frame(), f"#define CHUNK {CHUNK}\n#define PARAMS {len(act.params)}\n", _file("c_rows.h")]
    text += [lifts(p.constraint, PARAMETER + p.name) for p in act.params if p.constraint.lifted]
    value = body(act, [()], C)
    text.append(_kernel(act, "c_forward.in", LINES=_statements(value), RESULT=_floats(value.results[0])))
    text.append(_backward(act, "backward_x", []))
    if act.params:
        text.append(_backward(act, "backward_all", act.params))
    return "\n".join(text)


def lifts(constraint: Constraint, name: str) -> str:
    """The functions `lift_NAME`, the effective value of a raw one beside its anchor, and `lift_slope_NAME`."""
    text = ""
    for title, code in zip(("lift", "lift_slope"), lift_bodies(constraint, C), strict=True):
        lines = f"{_statements(code)}\n    return {_floats(code.results[0])};"
        text += f"INLINE float {title}_{name}(float raw, float anchor) {{\n{lines}\n}}\n"
    return text


def _backward(act: Activation, name: str, wanted: Sequence[Param]) -> str:
    slopes = body(act, [("x",), *((p.name,) for p in wanted)], C)
    by_x, *others = [f"grad_value * {_floats(slope)}" for slope in slopes.results]
    sums = [f"sum_{i}" for i in range(len(wanted))]
    stores = [f"out[element] = {by_x};"]
    stores += [f"{s} += element < count ? {term} : 0.0;" for s, term in zip(sums, others, strict=True)]
    lifted = [(i, PARAMETER + p.name) for i, p in enumerate(wanted) if p.constraint.lifted]
    chain = [f"    if (anchor_{p}) sums[{i}] *= lift_slope_{p}(*{p}, *anchor_{p});" for i, p in lifted]
    return _kernel(
        act,
        "c_backward.in",
        NAME=name,
        LINES=_statements(slopes),
        STORES="\n".join(stores),
        SUMS=len(wanted),
        REDUCTION=f" reduction(+:{', '.join(sums)})" if sums else "",
        ZEROS="".join(f"    double {s} = 0;\n" for s in sums),
        ADD="".join(f"    sums[{i}] += {s};\n" for i, s in enumerate(sums)),
        CHAIN="\n".join(chain),
    )


def _kernel(act: Activation, file: str, **values: object) -> str:
    """A kernel whose last arguments point to the parameters, and to the anchors of those that may be raw or are NULL.

    It is the text of a file with what stands for @NAME@.
    """
    names, text = [PARAMETER + p.name for p in act.params], _file(file)
    anchored = {PARAMETER + p.name: f"anchor_{PARAMETER}{p.name}" for p in act.params if p.constraint.lifted}
    reads = [f"    work.values[{i}] = {name};" for i, name in enumerate(names)]
    reads += [
        f"    float lifted_{name};\n    if ({anchor}) lifted_{name} = lift_{name}(*{name}, *{anchor}), "
        f"work.values[{names.index(name)}] = &lifted_{name};"
        for name, anchor in anchored.items()
    ]
    values["PARAMETERS"] = "\n".join(f"    const float {name} = params[{i}];" for i, name in enumerate(names))
    values["POINTERS"] = "".join(f", const float *{name}" for name in (*names, *anchored.values()))
    values["READ"] = "\n".join(reads)
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def _floats(text: str) -> str:
    return _NUMBER.sub(r"\1f", text).replace("~", "!")


def _statements(code: Body) -> str:
    """Assignments as declarations where a name is new; an indented part, which only a loop has, in braces."""
    known: set[str] = set()
    statements: list[str] = []
    inside = False
    for line in code.lines:
        if inside and line[0] != " ":
            statements.append("}")
            inside = False
        text = _floats(line.strip())
        name = text.partition(" = ")[0]
        if text.startswith("for ("):
            statements.append(f"{text} {{")
            inside = True
        elif pair := _PAIR.fullmatch(text):
            first, second, function, argument = pair.groups()
            statements.append(f"float {first}, {second}; {function}({argument}, &{first}, &{second});")
        else:
            statements.append(f"{text};" if name in known or name == "moving" else f"__auto_type {text};")
            known.add(name)
    return "\n".join([*statements, *(["}"] if inside else [])])
