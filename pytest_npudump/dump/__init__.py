"""From the files of a dump to one record a tensor, whatever wrote them. Knows nothing of pytest or goldens.

``reader`` is the way in and ``records`` the result: ``tree`` finds the files and says what ran, by their
``names`` and ``places``; ``files`` are read each to an ``execution``, through ``bytes/``; ``arrays/`` and
``values/`` are what these mean, ``stats/`` computes statistics. ``table`` holds those of a whole dump;
``selection`` chooses layers; ``columns``, ``batches`` and ``unguarded`` keep ten thousand tensors cheap.
"""
