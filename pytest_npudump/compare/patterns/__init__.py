"""Where inside a tensor it differs, and how: one sentence, or none.

``find`` is the way in. ``evidence`` surveys the tensors, ``places`` proposes where the difference is, the
families say what could have happened there: ``values`` (stuck, unwritten, another tensor's), ``arithmetic``
(a sign, a factor, an offset), ``moves`` (shifted, other order of axes) and ``lines`` (rows or channels that
have changed places). ``verification`` looks at every element before anything is claimed; ``words`` names
places.
"""
