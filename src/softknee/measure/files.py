"""Writes a file whole or not at all: the room `softknee.files`, where records and pages look for it."""

from ..files import WriteError, write_whole

__all__ = ["WriteError", "write_whole"]
