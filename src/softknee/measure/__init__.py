"""Measurements: functions that return typed records, and the one schema those records have."""

from ..files import WriteError, write_whole
from .edge import Edge
from .machine import Hardware, Versions
from .prediction import PredictionDifference, prediction_difference
from .propagation import Propagation, propagation
from .record import Quantity, Record, RecordError, without_paths

__all__ = [
    "Edge",
    "Hardware",
    "PredictionDifference",
    "Propagation",
    "Quantity",
    "Record",
    "RecordError",
    "Versions",
    "WriteError",
    "prediction_difference",
    "propagation",
    "without_paths",
    "write_whole",
]
