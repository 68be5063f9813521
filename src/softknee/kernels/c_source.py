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

_FORWARD = """
static void forward_block(const float *in, float *out, const float *params) {
@PARAMETERS@
    #pragma omp simd
    for (int element = 0; element < BLOCK; ++element) {
        float x = in[element];
@LINES@
        out[element] = @RESULT@;
    }
}

static void forward_chunk(void *argument, int64_t index) {
    Work *work = argument;
    float in[BLOCK], out[BLOCK];
    int64_t end = (index + 1) * CHUNK < work->n ? (index + 1) * CHUNK : work->n;
    for (int64_t start = index * CHUNK; start < end; start += BLOCK) {
        int count = end - start < BLOCK ? (int)(end - start) : BLOCK;
        float *target = place(work->type, work->y, start, out, count);
        forward_block(load(work->type, work->x, start, in, count), target, work->params);
        store(work->type, work->y, start, target, count);
    }
}

void forward(const void *x, void *y, int type, int64_t n, unsigned threads@POINTERS@) {
    Work work = {.x = x, .y = y, .type = type, .n = n, .chunk = forward_chunk};
@READ@
    run(&work, threads);
}
"""

_BACKWARD = """
static void @NAME@_block(const float *grad, const float *in, float *out, float (*terms)[BLOCK], const float *params) {
@PARAMETERS@
    #pragma omp simd
    for (int element = 0; element < BLOCK; ++element) {
        float x = in[element];
        float grad_value = grad[element];
@LINES@
@STORES@
    }
}

static void @NAME@_chunk(void *argument, int64_t index) {
    Work *work = argument;
    float grad[BLOCK], in[BLOCK], out[BLOCK], terms[@SUMS@ + 1][BLOCK];
    double sums[@SUMS@ + 1] = {0};
    int64_t end = (index + 1) * CHUNK < work->n ? (index + 1) * CHUNK : work->n;
    for (int64_t start = index * CHUNK; start < end; start += BLOCK) {
        int count = end - start < BLOCK ? (int)(end - start) : BLOCK;
        float *target = place(work->type, work->y, start, out, count);
        const float *from = load(work->type, work->g, start, grad, count);
        @NAME@_block(from, load(work->type, work->x, start, in, count), target, terms, work->params);
        store(work->type, work->y, start, target, count);
        for (int i = 0; i < @SUMS@; ++i) sums[i] += sum_block(terms[i], count);
    }
    for (int i = 0; i < @SUMS@; ++i) work->sums[i * work->chunks + index] = sums[i];
}

/* `sums` has room for one number per parameter and chunk; the totals stand in its first ones at the end. */
void @NAME@(const void *g, const void *x, void *dx, double *sums, int type, int64_t n, unsigned threads@POINTERS@) {
    Work work = {.g = g, .x = x, .y = dx, .sums = sums, .type = type, .n = n, .chunk = @NAME@_chunk};
@READ@
    run(&work, threads);
    for (int i = 0; i < @SUMS@; ++i) {
        double total = 0;
        for (int64_t index = 0; index < work.chunks; ++index) total += sums[i * work.chunks + index];
        sums[i] = total;
    }
}
"""


@functools.cache
def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def kernels(act: Activation) -> str:
    """The functions `forward`, `backward_x` (the gradient of x alone) and `backward_all` (every parameter's, too)."""
    text = [_file("c_math.h"), f"#define CHUNK {CHUNK}\n#define PARAMS {len(act.params)}\n", _file("c_frame.h")]
    value = body(act, [()], C)
    text.append(_kernel(act, _FORWARD, LINES=_statements(value), RESULT=_floats(value.results[0])))
    text.append(_backward(act, "backward_x", []))
    if act.params:
        text.append(_backward(act, "backward_all", [p.name for p in act.params]))
    return "\n".join(text)


def _backward(act: Activation, name: str, wanted: Sequence[str]) -> str:
    slopes = body(act, [("x",), *((parameter,) for parameter in wanted)], C)
    targets = ["out[element]", *(f"terms[{i}][element]" for i in range(len(wanted)))]
    stores = [f"{t} = grad_value * {_floats(slope)};" for t, slope in zip(targets, slopes.results, strict=True)]
    lines, stored = _statements(slopes), "\n".join(stores)
    return _kernel(act, _BACKWARD, NAME=name, LINES=lines, STORES=stored, SUMS=len(wanted))


def _kernel(act: Activation, template: str, **values: object) -> str:
    """A kernel whose last arguments point to the parameters."""
    names = [PARAMETER + p.name for p in act.params]
    return _fill(
        template,
        PARAMETERS="\n".join(f"    const float {name} = params[{i}];" for i, name in enumerate(names)),
        POINTERS="".join(f", const float *{name}" for name in names),
        READ="\n".join(f"    work.params[{i}] = *{name};" for i, name in enumerate(names)),
        **values,
    )


def _fill(template: str, **values: object) -> str:
    for name, value in values.items():
        template = template.replace(f"@{name}@", str(value))
    return template


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
