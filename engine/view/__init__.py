"""A compile as a page: every line of every IR with what it came from, and what the rules did."""
