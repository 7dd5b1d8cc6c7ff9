"""From a directory to what ran: ``find`` its files, ``jobs`` to read, ``keys`` for every tensor.

``mindspore`` tells the runs in one directory apart.
"""
