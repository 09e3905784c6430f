"""Kernel IR: hardware primitives. Written by the code generator's owner."""
