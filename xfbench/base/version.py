"""The version of xfbench."""

__version__ = "0.1.0"
