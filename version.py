"""The version of dplc, said once."""

__version__ = "0.1.0"
