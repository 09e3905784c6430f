"""Benchmark suites: many programs in one file, compiled cold, run, checked, assembled and predicted.

Programs are also measured if this machine has a GPU. `dplc bench` is the command; examples/suites/README.md shows a
result.
"""
