"""Elements against elements: ``difference`` for two arrays, ``tensor_pair`` for tensors in files.

``kernel`` measures chunks of any type.
``element_verdict`` joins the findings with a comparison of statistics, ``indices`` judges those by the values
that they are of. ``picture`` describes a tensor by itself, and is what can be drawn.
"""
