r"""The fused kernels of the flow in Triton: any number of cells, parameters of any granularity, no atomics.

The formulas are those of `eager.py`. x is dense, laid out as (outer, g1, middle, g2, inner) with one row of theta for
each of the g1 * g2 groups. A tile is (ROWS elements of a group, GROUPS groups). Every element walks the cells in the
order of its direction, all elements together: in step i those that move up may cross cell i, those that move down cell
n - 1 - i. A step costs some comparisons; the logarithms in it belong to the cells and not to the elements. Arithmetic
is float32 whatever the storage type.
"""

# Code for Triton's compiler, which a type checker takes for Python.
# pyright: reportGeneralTypeIssues=false

import triton
import triton.language as tl

from ..triton_math import ALL, exp, expm1, log1p, normal_pair

# An exponent whose exponential, times some hundreds, is a float32.
HIGHEST = tl.constexpr(80.0)
# More than the time 1.
NEVER = tl.constexpr(2.0)


@triton.jit
def _velocity(theta, border, n, known):
    """V at borders; theta points at the rows of the groups."""
    return tl.load(theta + border - 1, mask=known & (border > 0) & (border < n), other=0.0).to(tl.float32)


@triton.jit
def _travel_time(gap, a, b):
    """The time for a gap along which the velocity goes straight from a to b, or NEVER where it turns."""
    passes = a * b > 0
    a, b = tl.abs(a), tl.abs(b)
    small = tl.where(passes, tl.minimum(a, b), 1.0)
    more = tl.where(passes, tl.abs(a - b), 0.0)
    ratio = more / small
    bends = ratio > 0
    inverse_speed = tl.where(bends, log1p(ratio) / tl.where(bends, more, 1.0), 1.0 / small)
    return tl.where(passes, gap * inverse_speed, NEVER)


@triton.jit
def _growth(y):
    """E(y) = (e^y - 1)/y."""
    rests = y == 0
    return tl.where(rests, 1.0, expm1(y) / tl.where(rests, 1.0, y))


@triton.jit
def _bent_growth(y):
    """F(y) = (y e^y - e^y + 1)/y^2; near 0 its series, the sum of y^k/(k! (k + 2))."""
    p = 2.48015873015873e-06 * y + 2.2045855379188714e-05
    p = p * y + 0.00017361111111111112
    p = p * y + 0.0011904761904761906
    p = p * y + 0.006944444444444444
    p = p * y + 0.03333333333333333
    p = p * y + 0.125
    p = p * y + 0.3333333333333333
    p = p * y + 0.5
    near = tl.abs(y) < 0.5
    far = tl.where(near, 1.0, y)
    return tl.where(near, p, (far * exp(far) - expm1(far)) / (far * far))


@triton.jit
def _path(x, inside, theta, known, n, low, width, low_head, low_rest, width_head, width_rest):
    """How each element moves, as `Path` in eager.py has it."""
    within = tl.where(inside, x, low)
    floor = tl.minimum(tl.maximum(tl.floor((within - low) / width), 0.0), n - 1.0)
    cell = floor.to(tl.int32)
    # See places.py.
    fraction = ((within - (floor * width_head + low_head)) - (floor * width_rest + low_rest)) / width
    fraction = tl.minimum(tl.maximum(fraction, 0.0), 1.0)
    left = _velocity(theta, cell, n, known)
    right = _velocity(theta, cell + 1, n, known)
    slope = right - left
    speed = left + slope * fraction
    ahead = speed > 0
    gap = tl.where(ahead, 1.0 - fraction, fraction)
    at_border = tl.where(ahead, right, left)
    first_time = _travel_time(gap, speed, at_border)
    leaves = first_time < 1.0
    rest = 1.0 - first_time
    way = tl.where(ahead, 1, -1)
    last = tl.where(leaves, cell + way, cell)
    for i in range(n):
        up = _travel_time(1.0, _velocity(theta, i, n, known), _velocity(theta, i + 1, n, known))
        down = _travel_time(1.0, _velocity(theta, n - 1 - i, n, known), _velocity(theta, n - i, n, known))
        time = tl.where(ahead, up, down)
        crosses = leaves & (last == tl.where(ahead, i, n - 1 - i)) & (rest > time)
        rest = tl.where(crosses, rest - time, rest)
        last = tl.where(crosses, last + way, last)
    entry = tl.where(ahead, last, last + 1)
    pace = tl.where(leaves, _velocity(theta, entry, n, known), speed)
    time = tl.where(leaves, rest, 1.0)
    steep = (_velocity(theta, last + 1, n, known) - _velocity(theta, last, n, known)) * time
    steep = tl.minimum(steep, HIGHEST, propagate_nan=ALL)
    # Counted from x itself where no border is passed, so that what rests keeps its digits.
    begin = tl.where(leaves & inside, low + width * entry.to(tl.float32), x)
    bent = tl.where(inside, begin + width * (pace * time * _growth(steep)), x)
    return cell, fraction, slope, speed, leaves, gap, at_border, first_time, last, entry, pace, time, steep, bent


@triton.jit
def bend_kernel(
    x_ptr, theta_ptr, out_ptr, per_group, groups, n, g1, middle, g2, inner,
    low, high, width, low_head, low_rest, width_head, width_rest, parts,
    GATED: tl.constexpr, ROWS: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    element = (tl.program_id(0) % parts).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    group = tl.program_id(0) // parts * GROUPS + tl.arange(0, GROUPS)
    known = (group < groups)[None, :]
    theta = theta_ptr + group[None, :].to(tl.int64) * (n - 1)
    above = element // inner
    row = (((above // middle)[:, None] * g1 + (group // g2)[None, :]) * middle + (above % middle)[:, None]) * g2
    at = (row + (group % g2)[None, :]) * inner + (element % inner)[:, None]
    there = (element < per_group)[:, None] & known
    x = tl.load(x_ptr + at, mask=there, other=0.0).to(tl.float32)
    inside = (x > low) & (x < high)
    _c, _f, _s, _v, _l, _g, _a, _t, _e, _b, _p, _d, _y, bent = _path(
        x, inside, theta, known, n, low, width, low_head, low_rest, width_head, width_rest
    )
    if GATED:
        share, _density = normal_pair(x)
        # At minus infinity this is 0, as in GELU.
        bent = tl.maximum(bent, -1e30, propagate_nan=ALL) * share
    tl.store(out_ptr + at, bent.to(out_ptr.dtype.element_ty), mask=there)


@triton.jit
def bend_backward_kernel(
    grad_ptr, x_ptr, theta_ptr, dx_ptr, sums_ptr, per_group, groups, n, g1, middle, g2, inner,
    low, high, width, low_head, low_rest, width_head, width_rest, tiles, parts,
    GATED: tl.constexpr, BY_X: tl.constexpr, BY_THETA: tl.constexpr,
    BORDERS: tl.constexpr, ROWS: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """The gradient of x, and this program's own sums for theta, row `part` of (parts, groups, n - 1)."""
    part = (tl.program_id(0) % parts).to(tl.int64)
    group = tl.program_id(0) // parts * GROUPS + tl.arange(0, GROUPS)
    known = (group < groups)[None, :]
    theta = theta_ptr + group[None, :].to(tl.int64) * (n - 1)
    borders = tl.arange(0, BORDERS)
    sums = tl.zeros((GROUPS, BORDERS), tl.float32)
    for tile in range(tiles):
        element = (part * tiles + tile) * ROWS + tl.arange(0, ROWS)
        above = element // inner
        row = (((above // middle)[:, None] * g1 + (group // g2)[None, :]) * middle + (above % middle)[:, None]) * g2
        at = (row + (group % g2)[None, :]) * inner + (element % inner)[:, None]
        there = (element < per_group)[:, None] & known
        x = tl.load(x_ptr + at, mask=there, other=0.0).to(tl.float32)
        grad = tl.load(grad_ptr + at, mask=there, other=0.0).to(tl.float32)
        inside = (x > low) & (x < high)
        cell, fraction, slope, speed, leaves, gap, at_border, first_time, last, entry, pace, time, steep, bent = _path(
            x, inside, theta, known, n, low, width, low_head, low_rest, width_head, width_rest
        )
        grown = exp(steep)
        moving = tl.where(leaves, speed, 1.0)
        if GATED:
            share, density = normal_pair(x)
        if BY_X:
            # The factors of all cells but the last are ratios of velocities, of which the ends remain.
            by_x = tl.where(inside, tl.where(leaves, grown * (pace / moving), grown), 1.0)
            if GATED:
                # An infinite x is finite here: its density is 0.
                finite = tl.minimum(tl.maximum(bent, -1e18, propagate_nan=ALL), 1e18, propagate_nan=ALL)
                by_x = by_x * share + finite * density
            tl.store(dx_ptr + at, (grad * by_x).to(dx_ptr.dtype.element_ty), mask=there)
        if BY_THETA:
            weight = grad * width
            if GATED:
                weight = weight * share
            weight = tl.where(inside & there, weight, 0.0)
            # The last stretch: from a border, at fraction 0 or 1 of its cell, or from the beginning.
            start = tl.where(leaves, (entry - last).to(tl.float32), fraction)
            last_flat = weight * time * _growth(steep)
            last_right = start * last_flat + weight * pace * time * time * _bent_growth(steep)
            # The stretch to the first border. There e^y is a ratio of velocities, and the integral of p is gap/speed.
            at_end = tl.where(leaves, weight * grown * (pace / tl.where(leaves, at_border, 1.0)), 0.0)
            first_flat = at_end * (gap / tl.abs(moving))
            first_time = tl.where(leaves, first_time, 0.0)
            first_right = fraction * first_flat
            first_right += at_end * speed * first_time * first_time * _bent_growth(slope * first_time)
            # Whole cells lie between the two; over one, p is |V(T)|/|V(u)|.
            end_speed = tl.where(leaves, weight * grown * tl.abs(pace), 0.0)
            lower, upper = tl.minimum(cell, last), tl.maximum(cell, last)
            carried = tl.zeros((ROWS, GROUPS), tl.float32)
            for i in range(n):
                a, b = _velocity(theta, i, n, known), _velocity(theta, i + 1, n, known)
                whole_time = _travel_time(1.0, a, b)
                crossed = whole_time < 1.0
                a, b = tl.where(crossed, tl.abs(a), 1.0), tl.where(crossed, tl.abs(b), 1.0)
                whole_right = (a / b) * whole_time * whole_time * _bent_growth((b - a) * whole_time)
                whole_left = 1.0 / (a * b) - whole_right
                through = tl.where((lower < i) & (i < upper), end_speed, 0.0)
                ends, begins = last == i, leaves & (cell == i)
                to_left = tl.where(ends, last_flat - last_right, 0.0) + tl.where(begins, first_flat - first_right, 0.0)
                to_right = tl.where(ends, last_right, 0.0) + tl.where(begins, first_right, 0.0)
                here = tl.sum(carried + to_left + through * whole_left, axis=0)
                carried = to_right + through * whole_right
                sums += tl.where((borders == i)[None, :], here[:, None], 0.0)
    if BY_THETA:
        into = (part * groups + group)[:, None] * (n - 1) + borders[None, :] - 1
        kept = (group < groups)[:, None] & ((borders > 0) & (borders < n))[None, :]
        tl.store(sums_ptr + into, sums, mask=kept)
