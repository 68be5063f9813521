"""Measurements: functions that return typed records, and the one schema those records have."""

from ..files import WriteError, write_whole
from .edge import Edge
from .hardness import HardnessProfile, HardnessTrace, SiteHardness, drift, hardness_profile, spearman
from .machine import Hardware, Versions
from .prediction import PredictionDifference, prediction_difference
from .propagation import Propagation, propagation
from .record import Quantity, Record, RecordError, without_paths

__all__ = [
    "Edge",
    "HardnessProfile",
    "HardnessTrace",
    "Hardware",
    "PredictionDifference",
    "Propagation",
    "Quantity",
    "Record",
    "RecordError",
    "SiteHardness",
    "Versions",
    "WriteError",
    "drift",
    "hardness_profile",
    "prediction_difference",
    "propagation",
    "spearman",
    "without_paths",
    "write_whole",
]
