"""The test again, with tensors: ``run_plan`` and ``agreed_plan`` choose which, ``examine`` reads them.

``patterns`` is where in a tensor they differ, ``by_reference`` what the ONNX model says of them,
``suspected`` which operators are wrong alone, ``suspected_calls`` which calls of torch are.
``inputs_wanted`` is what these read, ``third_run`` looks behind those that are acquitted.
"""
