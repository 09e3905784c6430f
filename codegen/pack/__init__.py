"""A pack: programs as cubins in one file, measured on a machine that has torch and a GPU and nothing of the compiler.

`engine/models/benching.py` writes a pack with the sources of this folder in it, and of the few files that it imports.
"""
