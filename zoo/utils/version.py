"""The version, also recorded in saved files. pyproject.toml reads it from here."""

__version__ = "0.1.0"
