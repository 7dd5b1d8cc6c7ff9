"""Graph edges between tensors, sources of a failure, and operators' parameters.

``model_files`` reads the edges between tensors from the files of what ran, ``model_digests`` digests of their
weights and attributes, ``source_code`` the lines of source that layers come from.
``sources`` are the failing tensors that none explains, in the graph of a comparison's tensors.
"""
