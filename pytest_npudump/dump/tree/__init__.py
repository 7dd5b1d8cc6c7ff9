"""From a directory to what ran: ``find`` its files and which are read together, ``keys`` for every tensor.

``mindspore`` tells the runs in one directory apart.
"""
