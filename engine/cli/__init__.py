"""Command line, the top layer: no other package imports it."""
