"""Exploration is on top of what the rules decide: where it fails, they decide, and a note says so."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

from .problem import RegionTooLarge

T = TypeVar("T")
STRICT = "DPLC_STRICT"  # in the environment: a failure of exploration is an error, as our tests want it


def or_else(make: Callable[[], T], otherwise: Callable[[], T], tell: Callable[[str], None]) -> T:
    """What `make` makes; where it fails, `otherwise`, and `tell` is told why. Under DPLC_STRICT the failure is raised.

    A program that is too large is no failure: there is nothing to mend.
    """
    try:
        return make()
    except RegionTooLarge as error:
        tell(f"the program is not explored: {error}")
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of egglog is no Exception
        if os.environ.get(STRICT, "0") not in ("", "0"):
            raise
        tell(
            f"exploration failed, so the rules decide in their order ({type(error).__name__}: {error}; "
            f"this is a defect of dplc, {STRICT}=1 shows where)"
        )
    return otherwise()
