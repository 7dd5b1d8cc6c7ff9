"""Statistics against statistics: which tensor is which, and what differs by more than it may.

``tables`` is the way in and says what was not judged, ``verdict`` is the result. ``alignment`` finds pairs;
``numbers`` and ``fingerprints`` judge them; ``allowances`` says how far each statistic may be off, how far
it is, and how far it strays between healthy runs.
"""
