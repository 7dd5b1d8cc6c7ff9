"""The marker ``npu_dump``, checked at collection, before anything runs.

``marks`` finds it, ``arguments`` checks each of its arguments, ``combinations`` those that need or exclude
each other, ``item`` makes the request of it.
"""
