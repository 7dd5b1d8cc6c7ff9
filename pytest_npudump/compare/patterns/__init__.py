"""Where inside a tensor it differs, and how: one sentence, or none.

``pattern_search`` is the way in and has the result, made of a ``change``; ``tensor_patterns`` is the way in
for tensors in files. ``evidence`` surveys the tensors, ``likely_places`` proposes where the difference is,
families say what could have happened there: ``held_values`` (stuck, unwritten, another
tensor's), ``arithmetic`` (a sign, a factor, an offset), ``moves`` (shifted, other order of axes),
``exchanged_lines`` (rows or channels that have changed places). ``verification`` looks at every element
before anything is claimed; ``place_words`` names places.
"""
