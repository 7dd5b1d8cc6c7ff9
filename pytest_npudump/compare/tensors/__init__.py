"""Elements against elements: ``difference`` for two arrays, ``tensor_pair`` for tensors in files.

``kernel`` measures chunks of any type, ``code_pairs`` counts pairs of bytes of the types of at most 8 bits;
both add to ``measures``. ``element_verdict`` joins the findings with a comparison of statistics. ``describe``
looks at a tensor by itself, ``picture`` is what can be drawn.
"""
