"""Tolerances: ``presets`` by data type, ``rules`` as people write them, a ``tolerance`` as judges ask.

``upstream`` says what other numerics may change by what a tensor was computed from.
"""
