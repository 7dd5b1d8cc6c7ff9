"""From a directory to what ran: ``find`` its files, ``keys`` for every tensor.

``runs`` tells repetitions apart; ``mindspore*``, ``torchair`` and ``converted`` know the names of their
writers; ``raw_names`` undoes what file names lose, ``unnamed`` files are told by their content,
``overflow_operators`` are whom overflow records mean.
"""
