"""Distributed runs: the ``rank`` of this process, and its exchange with those of one machine.

``agreement`` is what they decide with it: on running a test again, on one golden for all, and on what is told
at the end.
"""
