"""From a directory to what ran: ``find`` its files, ``places`` from folders, ``keys`` for every tensor.

``runs``, ``occurrences`` and ``executions`` tell repetitions apart; ``eager``, ``mindspore*``, ``torchair``
and ``converted`` know the names of their writers; ``csv_folders`` has directories of nothing but statistics
in columns; ``raw_names`` undoes what file names lose.
"""
