"""The first run judged: ``judge`` reads its dump and records it, or compares it with the golden.

``judge_snapshot`` is the comparison, ``golden_elements`` that of tensors, ``changed_within`` what differs
within tolerance. ``settled`` says before all of that which golden applies to the run, and whether it is
compared or written.
"""
