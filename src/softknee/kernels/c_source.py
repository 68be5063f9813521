"""The text of the C kernels of one definition: a vectorised pass over a dense tensor each way.

A kernel works on blocks of a fixed size, the last one filled up, so that each element meets the same instructions
wherever it stands. The sums of a parameter's gradient are taken over each chunk of blocks in double precision and added
in the order of the chunks: the bits do not depend on how many threads there were.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path

import torch

from ..spec import Activation
from ..spec.emit import PARAMETER
from ..spec.printers import Body, C, body

CHUNK = 1 << 14
"""The elements that a thread takes at a time."""

TYPES = (torch.float32, torch.bfloat16, torch.float16)
"""The types of a tensor; a kernel gets the place of its type in this list. All are computed in float32."""

# A number as Python writes it, and not the end of a name: in C it needs a suffix to be a float.
_NUMBER = re.compile(r"(?<![\w.])(\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+)")
_PAIR = re.compile(r"(\w+), (\w+) = (\w+_pair)\((.*)\)")


@functools.cache
def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def kernels(act: Activation) -> str:
    """The functions `forward`, `backward_x` (the gradient of x alone) and `backward_all` (every parameter's, too)."""
    text = [_file("c_math.h"), f"#define CHUNK {CHUNK}\n#define PARAMS {len(act.params)}\n", _file("c_frame.h")]
    value = body(act, [()], C)
    text.append(_kernel(act, "c_forward.in", LINES=_statements(value), RESULT=_floats(value.results[0])))
    text.append(_backward(act, "backward_x", []))
    if act.params:
        text.append(_backward(act, "backward_all", [p.name for p in act.params]))
    return "\n".join(text)


def _backward(act: Activation, name: str, wanted: Sequence[str]) -> str:
    slopes = body(act, [("x",), *((parameter,) for parameter in wanted)], C)
    targets = ["out[element]", *(f"terms[{i}][element]" for i in range(len(wanted)))]
    stores = [f"{t} = grad_value * {_floats(slope)};" for t, slope in zip(targets, slopes.results, strict=True)]
    lines, stored = _statements(slopes), "\n".join(stores)
    return _kernel(act, "c_backward.in", NAME=name, LINES=lines, STORES=stored, SUMS=len(wanted))


def _kernel(act: Activation, file: str, **values: object) -> str:
    """A kernel whose last arguments point to the parameters: the text of a file with what stands for @NAME@."""
    names, text = [PARAMETER + p.name for p in act.params], _file(file)
    values["PARAMETERS"] = "\n".join(f"    const float {name} = params[{i}];" for i, name in enumerate(names))
    values["POINTERS"] = "".join(f", const float *{name}" for name in names)
    values["READ"] = "\n".join(f"    work.params[{i}] = *{name};" for i, name in enumerate(names))
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
