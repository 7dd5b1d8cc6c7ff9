"""Golden tensors that lie in a store elsewhere, each under the hash of its bytes.

``object_cache`` is the folder of this machine, kept within its limit, ``object_store`` the place that all
share, through fsspec; ``tensor_store`` is both as a test sees them, and ``stored_golden`` what a golden says
of its tensors there.
"""
