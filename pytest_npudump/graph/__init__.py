"""Which tensor feeds which, and what that says of a failure.

``edges`` is the value, ``lines`` its text in a golden. It is read from an ONNX model (``onnx_edges``), from
what GE writes (``ge_graph``: ATC's JSON, text dumps; ``om_model``), from MindSpore's ``mindspore_ir``, and
from ``same_values`` of dumped inputs; ``at_hand`` finds the files. ``sources`` are the failing tensors that
none explains, found among the ``tensor_graph`` of a comparison; ``walk`` goes on from there among what
passes, by the ``differences``.
"""
