"""Comparison of a run with its golden. Knows nothing of files, pytest or reports.

``judge`` is the one caller of all of it: two records under terms make a comparison. ``tolerances/`` are what
may differ; ``stats/`` compares tables of statistics, ``tensors/`` elements; ``patterns/`` says where inside a
tensor it differs, and how; ``ulps`` holds an operator's output against a reference of its own, element by
element.
``correspondence`` pairs layers of other names and what ranks hold, ``name_suggestions`` proposes such pairs.
"""
