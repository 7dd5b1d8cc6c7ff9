"""Distributed runs: the ``rank`` of this process, and the exchange between ranks of one machine.

``exchange`` carries it; ``agreement`` is what they decide with it: on running a test again, on one golden for
all, and on what is told at the end.
"""
