"""Tensors as numpy arrays: the values of a payload, in the order of axes that the host would have.

``decode`` reads values, ``packed`` those below a byte, a piece at a time, ``npy`` a file of them. ``layouts``
undoes the device's.
"""
