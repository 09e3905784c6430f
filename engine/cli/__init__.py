"""The command line: the roof of the house. Nothing below it imports it."""
