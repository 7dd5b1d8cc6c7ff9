"""The statistics of a tensor, in one pass over cache-sized pieces.

``tensor`` and ``file_tensors`` are the ways in, ``accumulators`` take a tensor whose pieces arrive one by
one; a module for each family of types adds a piece (``float``, ``float64``, ``half``, ``int``), ``sums`` has
the arithmetic, ``totals`` the result, ``row_totals`` those of many small tensors at once. ``projected`` adds
``projections`` in the same pass, under ``signs``; ``float_elements`` has what these add up, ``column_sums``
how, ``mask_values`` what stands for NaN and infinities beside zeros.
"""
