"""Tuning: the schedules that the rules allow, searched for the fastest, and what is remembered of it."""
