"""Where inside a tensor it differs, and how: one sentence, or none.

``pattern_search`` is the way in, for arrays and for tensors in files. ``places`` surveys the tensors and
proposes where the difference is, ``changes`` what could have happened there; the search looks at every
element before anything is claimed.
"""
