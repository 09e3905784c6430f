"""The engine of `on torch` rules: comprehensions whose brackets are positional and make the axis names."""
