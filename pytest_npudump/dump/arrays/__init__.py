"""Tensors as numpy arrays: the values of a payload, in the order of axes that the host would have.

``decode`` reads values, ``packed`` those below a byte, a piece at a time, ``npy`` a file of them.
``host`` undoes the device's layout: ``layouts``, ``layouts_fractal`` for convolution weights,
``layouts_join`` for axes that were split.
"""
