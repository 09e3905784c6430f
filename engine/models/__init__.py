"""Compile whole models of the Hugging Face families to artefacts and run them: docs/internals/models.md."""
