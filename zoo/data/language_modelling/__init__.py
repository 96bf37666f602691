"""Data sets of running text."""
