"""Which tensor feeds which, and what that says of a failure.

``edges`` is the value and its text in a golden; ``model_files`` reads it from the files of what ran.
``sources`` are the failing tensors that none explains, in the graph of a comparison's tensors.
"""
