"""Which tensor feeds which, what that says of a failure, and what operators compute with.

``edges`` is the value and its text in a golden; ``model_files`` reads it from the files of what ran.
``model_digests`` are digests of weights and attributes.
``sources`` are the failing tensors that none explains, in the graph of a comparison's tensors.
"""
