"""Utilities that every other folder may use; imports nothing else of this package."""
