"""Rules on programs of statements: patterns to sites, templates to programs, passes in their order."""
