"""The version of xfbench."""

VERSION = "0.1.0"
