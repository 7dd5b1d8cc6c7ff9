"""What may differ: ``presets`` by data type, ``rules`` as people write them, a ``tolerance`` as judges ask.

``of_test`` says which ones hold for a test.
"""
