"""Numerical regression testing for Ascend NPUs, in pytest."""

__version__ = "0.1.0"
