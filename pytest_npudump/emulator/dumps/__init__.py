"""What a run under dump leaves.

``plan`` says which files an execution leaves under a configuration, ``recorder`` and ``writer`` make them,
with ``stats_text`` inside; ``exceptions`` are the scene of operators that fail.
"""
