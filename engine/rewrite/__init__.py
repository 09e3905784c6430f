"""Matching and rewriting: patterns to sites, templates to programs, passes in order, and the trace of what happened."""
