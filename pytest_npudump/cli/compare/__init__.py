"""``npudump compare``: two dumps, or a golden and a dump, judged outside of a test as the plugin judges them.

``command`` is the verb; ``sides`` reads what it is given, ``engine`` judges it, ``report`` and ``words`` say
it; ``what_if`` tries other tolerances; ``onnx_reference`` is the comparison with an ONNX model,
``kept_results`` that of two folders of kept results.
"""
