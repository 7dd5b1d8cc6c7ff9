"""What a run under dump leaves: ``plan`` says which files, ``recorder`` and ``writer`` make them.

``dump_settings`` is the configuration as models see it; ``overflow``, ``exceptions`` and ``operator_dump``
are the other scenes, ``callback`` the dump without files.
"""
