"""Fixtures of this folder: the command line and a store."""

from calling import dplc as dplc
from calling import ok as ok
from calling import path as path
