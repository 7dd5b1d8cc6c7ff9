"""From the files of a dump to one record a tensor, whatever wrote them. Knows nothing of pytest or goldens.

``reader`` is the way in and ``records`` the result: ``tree`` finds the files and tells what ran, by their
``names``; ``files`` are read each to an ``execution``, through ``filebytes`` and ``textfile``; ``arrays`` and
``dtypes`` are what these mean, ``stats`` computes statistics. ``table`` holds those of a whole dump;
``selection`` chooses layers; ``columns``, ``batches`` and ``unguarded`` keep ten thousand tensors cheap.
"""
