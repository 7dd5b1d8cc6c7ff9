"""A dump in chunks, for a function: ``receiver`` of all of it, ``container_stream``, ``tensor_stream``."""
