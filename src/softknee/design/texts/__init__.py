"""Definitions as texts and as files."""
