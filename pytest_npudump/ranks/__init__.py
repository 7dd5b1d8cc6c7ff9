"""Distributed runs: which rank this process is, and what the ranks of one machine tell each other.

``rank`` is the one, ``exchange`` the other, at a ``meeting_place``. On it rest an ``agreement`` on running a
test again, a ``shared_golden`` that holds for all ranks, and the ``failures`` told at the end.
"""
