"""Measurements: functions that return typed records, and the one schema those records have."""

from .files import WriteError, write_whole
from .machine import Hardware, Versions
from .record import Quantity, Record, RecordError, without_paths

__all__ = [
    "Hardware",
    "Quantity",
    "Record",
    "RecordError",
    "Versions",
    "WriteError",
    "without_paths",
    "write_whole",
]
