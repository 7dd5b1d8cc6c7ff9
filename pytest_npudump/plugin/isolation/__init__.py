"""One run of a marked test in a process of its own, a child pytest.

``parent`` is the run as its parent sees it, ``child`` the same from within, ``task`` what the one tells the
other. A child is a program of its own, or forked from a fork server (``server``) that has touched no device.
"""
