"""Search of a directory for a dump: ``find`` its files and which are read together, ``keys`` for tensors.

``mindspore`` tells the runs in one directory apart.
"""
