"""Graph edges between tensors, sources of a failure, and operators' parameters.

``model_files`` reads the edges between tensors from the files of what ran, and the lines of source of layers,
``model_digests`` digests of their weights and attributes.
``sources`` are the failing tensors that none explains, in the graph of a comparison's tensors.
"""
