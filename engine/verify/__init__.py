"""`dplc check`: every rule against subjects made from its own pattern and examples, by meaning and not by text."""
