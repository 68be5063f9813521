"""Smooth pieces joined into one function, every join decided by algebra."""
