"""What tuning found, kept: one file of a user, its entries, and what makes an entry valid."""
