"""What the server of processes imports before it forks them: see `processes` in engine/ruleset.py."""

from ..compiler import Compiler as Compiler
from ..ruleset import toolchain

toolchain()
