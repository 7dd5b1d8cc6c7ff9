"""``npudump compare``.

``command`` is the verb; ``sides`` reads what it is given, ``engine`` judges it, ``report`` and ``words`` say
it; ``reference`` is the comparison with an ONNX model.
"""
