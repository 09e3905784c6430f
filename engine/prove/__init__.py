"""Proofs of equations between values, for all ranks and sizes."""
