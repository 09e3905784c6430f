"""Tuning: search the schedules that the rules allow for the fastest one, and store it."""
