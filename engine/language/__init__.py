"""The rule language: loading `.rw` files, static checks, facts, guard expressions, pipelines."""
