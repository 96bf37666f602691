"""The version, which saved files name. pyproject.toml reads it from here."""

__version__ = "0.1.0"
