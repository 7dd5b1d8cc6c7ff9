"""Golden tensors that lie in a store elsewhere, each under the hash of its bytes.

``object_cache`` is the folder of this machine, kept within its limit, ``object_store`` the place that all
share, through fsspec.
"""
