"""Distributed runs: which ``rank`` this process is, and what the ranks of one machine tell each other.

``exchange`` carries it; ``agreement`` is what they decide with it: on running a test again, on one golden for
all, and on what is told at the end.
"""
