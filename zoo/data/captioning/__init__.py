"""Data sets of images with captions."""
