"""Shared input, output and endings of the commands.

``spoken_parser`` parses in the language asked for; ``source`` and ``tolerance_options`` are what a command is
given, ``work`` has it done and shown; ``project`` finds its tests, results and goldens, by
``pytest_config``, which is read without pytest.
``output`` is what comes of it, and how a command ends.
"""
