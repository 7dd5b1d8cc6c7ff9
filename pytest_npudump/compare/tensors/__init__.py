"""Elements against elements: ``difference`` for two arrays, ``pairs`` for tensors in files.

``fast`` and ``sums`` add up chunks, ``worst`` keeps the farthest elements; ``elements`` joins what they say
with a comparison of statistics, ``describe`` looks at a tensor by itself.
"""
