"""Batches, the interface between data modules and models, one file per task."""
