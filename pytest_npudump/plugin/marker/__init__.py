"""The marker ``npu_dump``, checked at collection, before anything runs.

``marks`` finds it, ``item`` checks its arguments and makes the request of it. ``identity`` is that of a test.
"""
