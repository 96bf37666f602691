"""Data sets of questions about documents."""
