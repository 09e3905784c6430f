"""Tools for authors of rules: a reference, skeletons of rules, and the language server."""
