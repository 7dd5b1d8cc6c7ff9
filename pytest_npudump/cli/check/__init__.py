"""``npudump check``: the results of a session judged again, without a device and without running.

``command`` judges by what counts, ``other_terms`` by what else is asked for; ``unmatched_rules`` names rules
that decide about no tensor.
"""
