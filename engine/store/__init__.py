"""Storage of tuning results: one file per user, its entries, and the conditions for a valid entry."""
