"""Which tensor feeds which, and what that says of a failure.

``model_files`` reads the edges between tensors from the files of what ran.
``sources`` are the failing tensors that none explains, in the graph of a comparison's tensors.
"""
