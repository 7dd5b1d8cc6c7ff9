"""Elements against elements: ``difference`` for two arrays, ``tensor_pair`` for tensors in files.

Of these, ``pair_batches`` takes many at once, and ``byte_pair`` those without values.

``families`` chooses a ``comparer`` of chunks, ``measures`` adds up what it finds, ``worst`` keeps the
farthest elements; ``element_verdict`` joins what they say with a comparison of statistics, ``describe``
looks at a tensor by itself, ``picture`` is what can be drawn.

Comparers: ``float32`` and ``float64``, ``complex`` and ``half_complex``, ``small`` tensors, ``decoded``
types, ``code_pairs`` and ``packed_codes`` of a byte and less. They share ``paired_chunks``,
``special`` values and distances in ``ulp``.
"""
