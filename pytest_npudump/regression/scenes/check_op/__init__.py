"""Operators against references of their own: no golden, and a dump for each check.

``operator_question`` is what a test asks and what its reference answers, ``operator_check`` runs one,
``example_dump`` holds what was returned against what was dumped, ``judge`` sums up the run.
"""
