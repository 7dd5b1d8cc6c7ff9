"""Torch modules as layers: hooks in place of a dump of operators."""
