"""A dump that comes in chunks to a function: ``receiver`` of all of it, a ``container``, a ``tensor``."""
