"""The process that uses the machine: its ``state``, the ``lifecycle`` of ACL and of the dump.

``callback`` hands dumps to a function of the application in place of the disk.
"""
