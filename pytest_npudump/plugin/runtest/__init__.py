"""A marked test on its way through pytest's runtest protocol, once or twice.

``item_case`` makes the case of a pytest item, with ``past_failures`` of the test, and ``item_state`` is what
is kept of it meanwhile. ``phases`` are its runs in this process, ``isolated_runs`` those in processes of
their own. ``conclusion`` decides what a phase reports, ``phase_report`` adds what was compared, ``approval``
lets a recording count once all of the test has passed.
"""
