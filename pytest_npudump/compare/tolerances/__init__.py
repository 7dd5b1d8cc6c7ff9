"""What may differ: ``presets`` by data type, ``rules`` as people write them, a ``tolerance`` as judges ask.

``numerics`` says which preset holds between a golden and a run, ``upstream`` what other numerics may change
by what a tensor was computed from.
"""
