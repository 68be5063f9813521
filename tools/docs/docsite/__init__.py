"""Builds the documentation: stages the pages, generates what follows from the code, runs every block, checks links."""
