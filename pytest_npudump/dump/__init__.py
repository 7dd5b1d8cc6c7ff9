"""From the files of a dump to one record a tensor, whatever wrote them. Knows nothing of pytest or goldens.

``reader`` is the way in and ``records`` the result: ``tree`` finds the files and says what ran, ``files``
reads each to an ``execution`` of ``parts``, ``arrays/`` and ``values/`` are what its bytes mean, ``stats/``
computes statistics, ``callback/`` takes a dump that never becomes files. ``table`` holds the statistics of a
whole dump, ``selection`` chooses layers by ``names``; ``columns``, ``batches`` and ``unguarded`` keep ten
thousand tensors cheap.
"""
