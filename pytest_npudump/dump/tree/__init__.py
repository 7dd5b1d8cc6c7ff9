"""From a directory to what ran: ``find`` its files, ``places`` from folders, ``keys`` for every tensor.

``runs``, ``turns`` and ``executions`` tell repetitions apart; ``eager``, ``mindspore*``, ``torchair`` and
``converted`` know the names of their writers; ``tables`` has directories of nothing but statistics in
columns; ``raw_names`` undoes what file names lose.
"""
