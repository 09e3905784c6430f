"""Benchmark suites: many programs in one file, compiled cold, run, checked, assembled, predicted, and measured where a
GPU is. `dplc bench` is the command; examples/suites/README.md shows a result."""
