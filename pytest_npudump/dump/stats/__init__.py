"""The statistics of a tensor, in one pass over cache-sized pieces.

``tensor`` is the way in, ``kernels`` add a piece, ``sums`` has the arithmetic and the result. ``projections``
are added in the same pass, under ``signs``; ``compact_projections`` has the short text of six of them.
"""
