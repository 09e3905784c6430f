"""Preparation and check of arrays: inputs, weights, devices, the compile that serves a length, and correct results."""
