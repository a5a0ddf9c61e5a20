"""The version, importable from every module."""

__version__ = "0.1.0"
