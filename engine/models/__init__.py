"""Whole models of the Hugging Face families: a configuration in, an artefact out, and a runner. docs/internals/models.md explains it."""
