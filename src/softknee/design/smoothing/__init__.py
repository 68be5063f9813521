"""Mollification: convolutions of piecewise polynomials in closed form."""
