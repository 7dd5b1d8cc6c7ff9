"""Golden files: their text, their place in the repository, and how they are written without loss.

``path`` is where a test's golden lies, ``variants`` which of its files counts, ``store`` reads and stages
one; ``origin`` the facts it records and ``stamps`` when. ``tensors`` is the
file beside it, ``tensor_content`` its bytes, ``kept_tensors`` what a test keeps there, ``pair`` both files
replaced as one. ``applicable`` tells which variant is for a run, ``overlay`` is one that holds what
differs, ``variant_files`` makes and removes it. ``replaceable`` says which run may be written over one.

Beside a run: ``census`` says which files are whose, ``integrity`` what is wrong with them, ``revisions`` what
changed between two; ``merge/`` makes one of two approvals. ``objects/`` are tensors that lie in a store,
``named_objects`` what all goldens name of them, for whoever looks after one.
"""
