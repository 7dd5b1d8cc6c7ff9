"""The emulated machine: ``state`` of the process, ``memory``, ``streams`` and ``events``, and its life cycle.

``faults`` are planted here, for tests of the tools that are to find them.
"""
