"""The one text syntax of all IRs and of rules: grammar, syntax tree, reader and printer."""
