"""The first run judged: ``judge`` reads its dump and records it, or compares it with the golden.

``judge_snapshot`` is the comparison, ``golden_elements`` that of tensors.
"""
