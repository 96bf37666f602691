"""The tasks that `zoo compare` can compare, one file for each; known.py finds that of a model."""
