"""Statistics against statistics: which tensor is which, and what differs by more than it may.

``tables`` is the way in, ``verdict`` the result. ``order``, ``sequences``, ``calls`` and ``pairing`` find the
pairs; ``numbers`` and ``digests`` judge them; ``doubts`` and ``first`` say what that means.
"""
