"""What the commands share, so that they read, print and end alike.

``spoken_parser`` parses in the language asked for; ``options`` and ``source`` are what a command is given,
``executors`` do its work, ``progress`` shows it; ``pytest_folder`` asks pytest for tests and settings.
``listing`` and ``output`` are what comes of it, ``exit_code`` how it ends.
"""
