"""The test again, with tensors: ``run_plan`` chooses which, ``examine`` reads them.

``suspected`` are the operators that may be to blame and what they read, ``alone`` says which of them are
wrong by themselves.
"""
