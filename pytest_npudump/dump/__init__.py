"""Reading of a dump's files to tensors in columns, whatever wrote them, without pytest or goldens.

``reader`` is the way in: ``tree`` finds the files and tells what ran, by their ``names``; ``files`` are
read through ``filebytes``. The result is a table of ``columns``, whose rows are ``records``; ``table``
holds the statistics of a dump as arrays. ``arrays`` and ``dtypes`` are what bytes mean, ``stats`` computes
statistics, ``selection`` chooses layers.
"""
