"""Patterns of a difference: its place in the tensor, and its kind, in one sentence or none.

``pattern_search`` is the way in, for arrays and for tensors in files. ``likely_places`` surveys the tensors
and proposes where the difference is, ``possible_changes`` what could have happened there; the search looks at
every element before anything is claimed.
"""
