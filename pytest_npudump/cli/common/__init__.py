"""What the commands share, so that they read, print and end alike.

``spoken_parser`` parses in the language asked for; ``options`` and ``source`` are what a command is given,
``executors`` do its work, ``progress`` shows it;
``collection`` asks pytest for tests, ``pytest_settings`` its configuration, ``tensor_place`` for a store of
golden tensors;
``listing``, ``output`` and ``output_file`` are what comes of it, ``exit_code`` how it ends.
"""
