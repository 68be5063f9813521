"""The version, in one place: the package's metadata and its records read it from here."""

VERSION = "0.1.0"
