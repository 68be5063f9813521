"""Makes src/softknee/design/smoothing/bump_table.json: the tail integrals of the bump kernel as Chebyshev pieces.

    T_j(a) = A integral_a^1 (t - a)^j e^{1/(t^2 - 1)} dt,   j = 0..3

Each piece is interpolated at 40 Chebyshev points in 40 digits and cut where what is dropped is below 2e-17 in sum. The
table is certified by softknee.design.smoothing.bump_kernel, not by this script. Run: python tools/make_bump_table.py
"""

import itertools
import json
from pathlib import Path

import mpmath as mp

mp.mp.dps = 40
EDGES = ["0", "0.25", "0.45", "0.6", "0.72", "0.81", "0.88", "0.94", "0.985"]
POINTS, DROPPED, ORDERS = 40, mp.mpf("2e-17"), 4
TARGET = Path(__file__).parent.parent / "src" / "softknee" / "design" / "smoothing" / "bump_table.json"


def bump(t):
    return mp.exp(1 / (t * t - 1)) if abs(t) < 1 else mp.mpf(0)


def integral(function, low):
    stops = [mp.mpf(s) for s in ("0.3", "0.6", "0.8", "0.9", "0.96", "0.99")]
    return mp.quad(function, [low, *(s for s in stops if s > low), 1])


SCALE = 1 / (2 * integral(bump, mp.mpf(0)))


def piece(order, low, high):
    """Coefficients in powers of z, a = (low + high)/2 + z (high - low)/2."""
    nodes = [mp.cos(mp.pi * (k + mp.mpf(1) / 2) / POINTS) for k in range(POINTS)]
    places = [(low + high) / 2 + z * (high - low) / 2 for z in nodes]
    values = [SCALE * integral(lambda t, a=a: (t - a) ** order * bump(t), a) for a in places]
    angles = [mp.pi * (k + mp.mpf(1) / 2) / POINTS for k in range(POINTS)]
    series = [
        2 * mp.fsum(v * mp.cos(i * w) for v, w in zip(values, angles, strict=True)) / POINTS for i in range(POINTS)
    ]
    series[0] /= 2
    keep = next(n for n in range(1, POINTS) if mp.fsum(map(abs, series[n:])) < DROPPED)
    powers = to_powers(series[:keep])
    if low == 0:
        # By symmetry T_j(0) is half a moment, and an even order must meet its mirror image there exactly.
        powers[0] += values_at_0(order) - mp.polyval(powers[::-1], -1)
    return powers


def values_at_0(order):
    return mp.mpf(1) / 2 if order == 0 else SCALE * integral(lambda t: t**order * bump(t), mp.mpf(0))


def to_powers(series):
    total = [mp.mpf(0)] * len(series)
    before, here = [mp.mpf(1)], [mp.mpf(0), mp.mpf(1)]
    for i, c in enumerate(series):
        current = before if i == 0 else here
        for power, k in enumerate(current):
            total[power] += c * k
        if i >= 1:
            following = [mp.mpf(0), *(2 * k for k in here)]
            for power, k in enumerate(before):
                following[power] -= k
            before, here = here, following
    return total


def main():
    moments = [SCALE * 2 * integral(lambda t, m=m: t ** (2 * m) * bump(t), mp.mpf(0)) for m in range(3)]
    tails = [
        [
            " ".join(mp.nstr(c, 24) for c in piece(order, mp.mpf(low), mp.mpf(high)))
            for low, high in itertools.pairwise(EDGES)
        ]
        for order in range(ORDERS)
    ]
    table = {"scale": mp.nstr(SCALE, 32), "moments": [mp.nstr(m, 32) for m in moments], "edges": EDGES, "tails": tails}
    TARGET.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
