"""The test again, with tensors: ``run_plan`` and ``agreed_plan`` choose which, ``examine`` reads them.

``patterns`` is where in a tensor they differ, ``by_reference`` what the ONNX model says of them,
``suspected`` which operators are wrong alone.
``inputs_wanted`` is what these read, ``third_run`` looks behind those that are acquitted.
"""
