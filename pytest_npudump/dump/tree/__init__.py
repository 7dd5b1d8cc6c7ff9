"""From a directory to what ran: ``find`` its files, ``keys`` for every tensor.

``runs`` and ``occurrences`` tell repetitions apart; ``eager``, ``mindspore*``, ``torchair``
and ``converted`` know the names of their writers; ``csv_folders`` has directories of nothing but statistics
in columns; ``raw_names`` undoes what file names lose, ``unnamed`` files are told by their content,
``overflow_operators`` are whom overflow records mean.
"""
