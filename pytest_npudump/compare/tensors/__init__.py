"""Elements against elements: ``difference`` for two arrays, ``pairs`` for tensors in files.

``families`` chooses a ``comparer`` of chunks, ``measures`` adds up what it finds, ``worst`` keeps the
farthest elements; ``elements`` joins what they say with a comparison of statistics, ``describe`` looks at a
tensor by itself.
"""
