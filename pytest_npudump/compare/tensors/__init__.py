"""Elements against elements: ``difference`` for two arrays, ``tensor_pair`` for tensors in files.

``kernel`` measures chunks of any type.
``element_verdict`` joins the findings with a comparison of statistics. ``picture`` describes a tensor by
itself, and is what can be drawn.
"""
