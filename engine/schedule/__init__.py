"""The schedule of a kernel: passes over Tile IR, the space of what they may do, schedules as data."""
