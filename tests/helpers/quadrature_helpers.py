"""What the tests of means under the normal distribution and of propagation share."""

import dataclasses

from softknee.design.concrete import Concrete


def by_quadrature(f: Concrete) -> Concrete:
    """The function without its closed form."""
    return dataclasses.replace(f, two_lines=None)
