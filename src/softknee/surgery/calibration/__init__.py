"""Widths and grids from what really reaches each activation."""

from .calibrate import Calibration, calibrate_

__all__ = ["Calibration", "calibrate_"]
