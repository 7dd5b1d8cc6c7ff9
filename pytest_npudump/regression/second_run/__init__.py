"""The test again, with tensors: ``run_plan`` chooses which, ``examine`` reads them.

``suspected`` says which operators, and which calls of torch, are wrong alone.
"""
