"""A marked test on its way through pytest's runtest protocol, once or twice.

``item_case`` makes the case of a pytest item, and is what is kept of it meanwhile. ``phases`` are its runs,
``conclusion`` decides what a phase reports, and lets a recording count once all of the test has passed.
"""
