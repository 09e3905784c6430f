"""All nests by name."""

import nests_of_contractions
import nests_of_rows
from nest import NESTS

__all__ = ["NESTS", "nests_of_contractions", "nests_of_rows"]
