"""pyACL, and whatever stands in for it.

``switch`` is the dump itself, ``observed`` are calls of the test, ``model`` runs models and single operators.
"""
