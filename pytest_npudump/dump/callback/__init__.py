"""A dump that CANN hands to a function in chunks, in place of files, and of which nothing is kept but sums.

``receiver`` takes all of it, ``container_stream`` one file of it, ``tensor_stream`` one tensor.
"""
