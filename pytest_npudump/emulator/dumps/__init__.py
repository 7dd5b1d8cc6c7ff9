"""What a run under dump leaves.

``dump_settings`` is the configuration as models see it; ``plan`` says which files an execution leaves,
``recorder`` and ``writer`` make them, with ``header`` or ``stats_text`` inside. ``overflow``,
``operator_dump``, ``exceptions`` and ``exception_files`` are the other scenes.
"""
