"""A dump that comes in chunks to a function: ``receiver`` of all of it, a ``record``, a ``tensor``."""
