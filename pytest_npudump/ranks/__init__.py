"""Distributed runs: which rank this process is, and what the ranks of one machine tell each other.

``rank`` is the one, ``exchange`` the other. On it rest an ``agreement`` on running a test again and on what
is told at the end, and a ``shared_golden`` that holds for all ranks.
"""
