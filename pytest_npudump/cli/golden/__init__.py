"""``npudump golden``: what golden files hold, and what becomes of them.

``waiting`` has the verbs about results; ``upkeep`` looks at files by the tests that read them, and at
variants; ``git`` is told and asked, ``show`` looks into a file, ``remote`` is the store of their tensors.
"""
