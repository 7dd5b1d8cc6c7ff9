"""What is installed on this machine, which runtimes work, and whether a dump can be written here.

``checks`` is the list, ``finding`` a line of the table; ``system`` is what a check sees of the machine.
``software``, ``devices``, ``environment``, ``dump_path`` and ``gate`` look at one thing each; ``probe``
tries a runtime in a process of its own, ``pytest_config`` reads what pytest would.
"""
