"""Statistics against statistics: which tensor is which, and what differs by more than it may.

``tables`` is the way in, ``verdict`` the result. ``alignment`` finds pairs; ``numbers`` and
``fingerprints`` judge them; ``unjudged`` says what was not judged, ``allowances`` how far each
statistic may be off, how far it is, and how far it strays between healthy runs.
"""
