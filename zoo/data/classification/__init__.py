"""Data sets of labelled texts."""
