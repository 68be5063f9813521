"""Certificates: constants enclosed by ball arithmetic."""
