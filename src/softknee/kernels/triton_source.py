"""The text of the fused kernels of one definition. Generated, so that no function has a kernel of its own.

Two shapes of each kernel: `flat` for parameters that are one number each, and `rows` for parameters that repeat
along storage as (outer, channels, inner). A backward kernel writes the gradient of x and, for each parameter
that needs one, a partial sum per program. In the flat kernel the program that ends last adds them up, in a fixed order;
those of the rows are summed by a second kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..spec import Activation, Constraint
from ..spec.emit import PARAMETER, Emitter
from ..spec.printers import TRITON, Body, body, expressions_body, lift_bodies, split_slopes

Index = tuple[str, ...]
# What a flat kernel is given for a parameter: a pointer to its value (None), a number (NUMBER), or pointers to a raw
# value and its anchor (the constraint that lifts them).
Source = str | Constraint | None
NUMBER = "number"


def compute(act: Activation, name: str, indices: Sequence[Index]) -> str:
    """A device function (x, *params) -> results."""
    return _device_function(act, name, body(act, indices, TRITON))


def _device_function(act: Activation, name: str, code: Body) -> str:
    names = ", ".join(["x", *(PARAMETER + p.name for p in act.params)])
    lines = ["@triton.jit", f"def {name}({names}):", *(f"    {line}" for line in code.lines)]
    return "\n".join([*lines, f"    return {', '.join(code.results)}", ""])


def lift(constraint: Constraint, name: str, slope: bool) -> str:
    """A device function of that name: (raw, anchor) -> the effective value, or its derivative."""
    code = lift_bodies(constraint, TRITON)[slope]
    lines = ["@triton.jit", f"def {name}(raw, anchor):", *(f"    {line}" for line in code.lines)]
    return "\n".join([*lines, f"    return {code.results[0]}", ""])


def _flat_arguments(act: Activation, sources: Sequence[Source]) -> tuple[str, str]:
    """The arguments of a flat kernel for its parameters (pointers, also to anchors; numbers), and how it reads them."""
    names = [PARAMETER + p.name for p in act.params]
    pointers = [f"{p}_ptr" for p, source in zip(names, sources, strict=True) if source != NUMBER]
    pointers += [f"anchor_{p}_ptr" for p, source in zip(names, sources, strict=True) if isinstance(source, Constraint)]
    numbers = [p for p, source in zip(names, sources, strict=True) if source == NUMBER]
    loads = ""
    for p, source in zip(names, sources, strict=True):
        if isinstance(source, Constraint):
            loads += f"    raw_{p} = tl.load({p}_ptr).to(tl.float32)\n"
            loads += f"    anchor_{p} = tl.load(anchor_{p}_ptr).to(tl.float32)\n"
            loads += f"    {p} = lift_{p}(raw_{p}, anchor_{p})\n"
        elif source is None:
            loads += f"    {p} = tl.load({p}_ptr).to(tl.float32)\n"
    return "".join(f"{name}, " for name in (*pointers, *numbers)), loads


def forward_flat(act: Activation, sources: Sequence[Source], place: str = "") -> str:
    """With the `place` of a minimum, also a bit for each x to its right, packed."""
    arguments, loads = _flat_arguments(act, sources)
    call = f"value({', '.join(['x', *(PARAMETER + p.name for p in act.params)])})"
    pointer = "sides_ptr, " if place else ""
    whole = f"        tl.store({_BYTES}, {_packed(place)})\n" if place else ""
    part = f"        tl.store({_BYTES}, {_packed(place)}, mask={_BYTES_INSIDE})\n" if place else ""
    return f"""
@triton.jit
def forward_flat(x_ptr, y_ptr, {pointer}{arguments}n, BLOCK: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = tl.arange(0, BLOCK)
{loads}    if n - base >= BLOCK:
        x = tl.load(x_ptr + base + offsets).to(tl.float32)
        tl.store(y_ptr + base + offsets, {call})
{whole}    else:
        inside = base + offsets < n
        x = tl.load(x_ptr + base + offsets, mask=inside, other=0.0).to(tl.float32)
        tl.store(y_ptr + base + offsets, {call}, mask=inside)
{part}"""


# Bits of 8 elements that lie side by side, the first one lowest.
_BYTES = "sides_ptr + base // 8 + tl.arange(0, BLOCK // 8)"
_BYTES_INSIDE = "base + 8 * tl.arange(0, BLOCK // 8) < n"


def _packed(place: str) -> str:
    bits = f"tl.reshape((x > {place}).to(tl.int32), [BLOCK // 8, 8]) << tl.arange(0, 8)[None, :]"
    return f"tl.sum({bits}, axis=1).to(tl.uint8)"


@dataclass(frozen=True)
class Recovery:
    """What a backward kernel computes before the slopes where y was saved: x, by `invert`.

    source: the text of `invert(y, side, *parameters)`.
    sides:  whether packed bits say on which side of the minimum x lies.
    """

    source: str
    sides: bool

    @property
    def pointer(self) -> str:
        return "sides_ptr, " if self.sides else ""

    def lines(self, act: Activation, place: str, indent: str, mask: str) -> str:
        """The statements that turn y, loaded as `x` from a place, into x."""
        arguments = ", ".join(["x", "side", *(PARAMETER + p.name for p in act.params)])
        masked = f", mask={mask}, other=0" if mask else ""
        byte = f"tl.load(sides_ptr + (({place}) >> 3){masked}).to(tl.int32)"
        side = f"(({byte} >> (({place}) & 7).to(tl.int32)) & 1) != 0" if self.sides else "x == x"
        recovered = f"tl.where({mask}, invert({arguments}), 0.0)" if mask else f"invert({arguments})"
        return f"{indent}side = {side}\n{indent}x = {recovered}\n"


def _recovered(recovery: Recovery | None, act: Activation, place: str, indent: str, mask: str = "") -> str:
    return recovery.lines(act, place, indent, mask) if recovery else ""


def forward_rows(act: Activation, place: str = "") -> str:
    params = [PARAMETER + p.name for p in act.params]
    pointers = "".join(f"{p}_ptr, " for p in params) + "".join(f"{p}_step, " for p in params)
    loads = "".join(
        f"    {p} = tl.load({p}_ptr + channel * {p}_step, mask=inside, other=1.0).to(tl.float32)\n" for p in params
    )
    pointer = "sides_ptr, " if place else ""
    sides = f"    tl.store({_BYTES}, {_packed(place)}, mask={_BYTES_INSIDE})\n" if place else ""
    return f"""
@triton.jit
def forward_rows(x_ptr, y_ptr, {pointer}{pointers}n, channels, inner, BLOCK: tl.constexpr):
    base = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = tl.arange(0, BLOCK)
    inside = base + offsets < n
    start = (base % (channels * inner)).to(tl.int32)
    channel = ((start + offsets) // inner) % channels
{loads}    x = tl.load(x_ptr + base + offsets, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + base + offsets, value({", ".join(["x", *params])}), mask=inside)
{sides}"""


def _slopes(act: Activation, needed: Sequence[str], want_x: bool) -> str:
    names = (["dx"] if want_x else []) + [f"d_{p}" for p in needed]
    arguments = ", ".join(["x", *(PARAMETER + p.name for p in act.params)])
    return f"{', '.join(names)} = slopes({arguments})"


def backward_flat(
    act: Activation, sources: Sequence[Source], needed: Sequence[str], want_x: bool, recovery: Recovery | None = None
) -> str:
    """One number per parameter: a program strides over blocks and keeps its sums in registers until its end, one for
    VECTOR elements that lie side by side (those that a thread loads at once).

    With `needed`, the program that counts itself last adds up the sums of all, always in the same order, and sets the
    counter back to 0.
    """
    params = [PARAMETER + p.name for p in act.params]
    arguments, loads = _flat_arguments(act, sources)
    by_name = {p.name: source for p, source in zip(act.params, sources, strict=True)}
    slopes, factors, combine = factors_of(act, needed, want_x=want_x)
    zero = "".join(f"    sum_{f} = tl.zeros([BLOCK // VECTOR], tl.float32)\n" for f in factors)
    add = "".join(
        f"        sum_{f} += tl.sum(tl.reshape(g * {f}, [BLOCK // VECTOR, VECTOR]), axis=1)\n" for f in factors
    )
    total = "".join(f"    {f} = tl.sum(sum_{f}, axis=0)\n" for f in factors)
    out = "".join(
        f"    tl.store(partial_ptr + {i} * tl.num_programs(0) + tl.program_id(0), {text})\n"
        for i, text in enumerate(combine.results)
    )
    last = ""
    for i, name in enumerate(needed):
        p = PARAMETER + name
        chain = f" * lift_slope_{p}(raw_{p}, anchor_{p})" if isinstance(by_name[name], Constraint) else ""
        last += f"""        total = tl.zeros([SUM], tl.float32)
        for first in range(0, tl.num_programs(0), SUM):
            place = first + tl.arange(0, SUM)
            inside = place < tl.num_programs(0)
            place += {i} * tl.num_programs(0)
            total += tl.load(partial_ptr + place, mask=inside, other=0.0, cache_modifier=".cg")
        tl.store(d_{p}_ptr, tl.sum(total, axis=0){chain})
"""
    if needed:
        out += f"""    tl.debug_barrier()
    if tl.atomic_add(counter_ptr, 1, sem="acq_rel") == tl.num_programs(0) - 1:
{last}        tl.store(counter_ptr, 0)
"""
    lines = "".join(f"    {line}\n" for line in combine.lines)
    even = "            tl.store(dx_ptr + base + offsets, g * dx)\n" if want_x else "            pass\n"
    odd = "            tl.store(dx_ptr + base + offsets, g * dx, mask=inside)\n" if want_x else "            pass\n"
    names = ", ".join([*(["dx"] if want_x else []), *factors])
    sums = "".join(f"d_{PARAMETER}{name}_ptr, " for name in needed)
    scratch = f"partial_ptr, counter_ptr, {sums}" if needed else ""
    constants = "BLOCK: tl.constexpr, EVEN: tl.constexpr"
    constants += ", VECTOR: tl.constexpr, SUM: tl.constexpr" * bool(needed)
    pointer = recovery.pointer if recovery else ""
    whole = _recovered(recovery, act, "base + offsets", " " * 12)
    part = _recovered(recovery, act, "base + offsets", " " * 12, "inside")
    return f"""{recovery.source if recovery else ""}{slopes}
@triton.jit
def backward_flat(g_ptr, x_ptr, {pointer}dx_ptr, {scratch}{arguments}n, {constants}):
    offsets = tl.arange(0, BLOCK)
    base = tl.program_id(0).to(tl.int64) * BLOCK
    stride = tl.num_programs(0).to(tl.int64) * BLOCK
{loads}{zero}    for _ in range(tl.program_id(0), (n - 1) // BLOCK + 1, tl.num_programs(0)):
        if EVEN:
            x = tl.load(x_ptr + base + offsets).to(tl.float32)
            g = tl.load(g_ptr + base + offsets).to(tl.float32)
{whole}        else:
            inside = base + offsets < n
            x = tl.load(x_ptr + base + offsets, mask=inside, other=0.0).to(tl.float32)
            g = tl.load(g_ptr + base + offsets, mask=inside, other=0.0).to(tl.float32)
{part}        {names} = slopes({", ".join(["x", *params])})
        if EVEN:
{even}        else:
{odd}{add}        base += stride
{total}{lines}{out}"""


def factors_of(
    act: Activation, needed: Sequence[str], *, want_x: bool, want_value: bool = False
) -> tuple[str, list[str], Body]:
    """The device function of the slope and of what is summed, the names of the sums, and how they are combined.

    want_x, want_value: whether it returns the slope by x, and before that the value, as well.
    """
    first: list[Index] = [*([()] if want_value else []), *([("x",)] if want_x else [])]
    split = split_slopes(act, needed)
    if split is None:
        factors = [f"f{i}" for i in range(len(needed))]
        slopes = compute(act, "slopes", [*first, *((name,) for name in needed)])
        return slopes, factors, Body((), tuple(factors))
    expressions = [*(act.partial(*index).computed for index in first), *split.factors]
    slopes = _device_function(
        act, "slopes", expressions_body(act, expressions, TRITON, slopes=True, guarded=len(first))
    )
    factors = [f"f{i}" for i in range(len(split.factors))]
    emitter = Emitter(TRITON, split.slopes, prefix="c")
    return slopes, factors, Body(tuple(emitter.lines), tuple(emitter.names))


def backward_columns(act: Activation, needed: Sequence[str], want_x: bool, recovery: Recovery | None = None) -> str:
    """Parameters vary along the fastest dimension: a program walks down some rows of a strip of columns."""
    params = [PARAMETER + p.name for p in act.params]
    pointers = "".join(f"{p}_ptr, " for p in params) + "".join(f"{p}_step, " for p in params)
    loads = "".join(
        f"    {p} = tl.load({p}_ptr + column * {p}_step, mask=column < channels, other=1.0).to(tl.float32)[None, :]\n"
        for p in params
    )
    assign = _slopes(act, needed, want_x)
    zero = "".join(f"    sum_{p} = tl.zeros([COLUMNS], tl.float32)\n" for p in needed)
    add = "".join(f"        sum_{p} += tl.sum(g * d_{p}, axis=0)\n" for p in needed)
    store = "        tl.store(dx_ptr + place, g * dx, mask=inside)\n" if want_x else ""
    out = "".join(
        f"    tl.store(partial_ptr + ({i} * tl.num_programs(1) + tl.program_id(1)).to(tl.int64) * channels + column, "
        f"sum_{p}, mask=column < channels)\n"
        for i, p in enumerate(needed)
    )
    slopes = compute(act, "slopes", [*([("x",)] if want_x else []), *((name,) for name in needed)])
    pointer = recovery.pointer if recovery else ""
    recover = _recovered(recovery, act, "place", " " * 8, "inside")
    return f"""{recovery.source if recovery else ""}{slopes}
@triton.jit
def backward_rows(g_ptr, x_ptr, {pointer}dx_ptr, partial_ptr, {pointers}items, channels, inner, share,
                  ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    first = tl.program_id(1).to(tl.int64) * share
    last = tl.minimum(first + share, items)
{loads}{zero}    for top in range(first, last, ROWS):
        row = top + tl.arange(0, ROWS)
        inside = (row < last)[:, None] & (column < channels)[None, :]
        place = row[:, None] * channels + column[None, :]
        x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(g_ptr + place, mask=inside, other=0.0).to(tl.float32)
{recover}        {assign}
{store}{add}{out}"""


def backward_channels(act: Activation, needed: Sequence[str], want_x: bool, recovery: Recovery | None = None) -> str:
    """Parameters vary along a slower dimension: a program walks over a part of one channel's elements."""
    params = [PARAMETER + p.name for p in act.params]
    pointers = "".join(f"{p}_ptr, " for p in params) + "".join(f"{p}_step, " for p in params)
    loads = "".join(f"    {p} = tl.load({p}_ptr + channel * {p}_step).to(tl.float32)\n" for p in params)
    assign = _slopes(act, needed, want_x)
    zero = "".join(f"    sum_{p} = tl.zeros([COLUMNS], tl.float32)\n" for p in needed)
    add = "".join(f"        sum_{p} += g * d_{p}\n" for p in needed)
    store = "        tl.store(dx_ptr + place, g * dx, mask=inside)\n" if want_x else ""
    out = "".join(
        f"    tl.store(partial_ptr + ({i} * tl.num_programs(1) + tl.program_id(1)).to(tl.int64) * channels + channel, "
        f"tl.sum(sum_{p}, axis=0))\n"
        for i, p in enumerate(needed)
    )
    slopes = compute(act, "slopes", [*([("x",)] if want_x else []), *((name,) for name in needed)])
    pointer = recovery.pointer if recovery else ""
    recover = _recovered(recovery, act, "place", " " * 8, "inside")
    return f"""{recovery.source if recovery else ""}{slopes}
@triton.jit
def backward_rows(g_ptr, x_ptr, {pointer}dx_ptr, partial_ptr, {pointers}items, channels, inner, share,
                  ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    channel = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1).to(tl.int64) * share
    last = tl.minimum(first + share, items)
{loads}{zero}    for start in range(first, last, COLUMNS):
        item = start + tl.arange(0, COLUMNS)
        inside = item < last
        place = ((item // inner) * channels + channel) * inner + item % inner
        x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(g_ptr + place, mask=inside, other=0.0).to(tl.float32)
{recover}        {assign}
{store}{add}{out}"""
