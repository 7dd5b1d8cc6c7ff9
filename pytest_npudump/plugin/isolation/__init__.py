"""Marked tests in processes of their own: a child pytest for each run of a test.

``protocol`` is the runs of a test, ``parent`` one run as its parent sees it, ``child`` the same from within,
``task`` what the one tells the other. A child is a program of its own, or forked from a fork server
(``server``, and ``server_process`` as its parent has it) that has touched no device.
"""
