"""From a directory to what ran: ``find`` its files, ``keys`` for every tensor.

``jobs`` are files that are read together, ``runs`` tells repetitions apart, ``mindspore`` those in one
directory, ``raw_names`` undoes what file names lose.
"""
