"""The test again, with tensors: ``run_plan`` chooses which, ``examine`` reads them.

``alone`` says which of the operators that may be to blame are wrong by themselves.
"""
