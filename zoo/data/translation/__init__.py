"""Data sets of sentence pairs."""
