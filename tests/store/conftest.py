"""Fixtures of this folder: the command line."""

from calling import dplc as dplc
from calling import ok as ok
