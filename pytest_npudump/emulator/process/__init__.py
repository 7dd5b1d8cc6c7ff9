"""The process that uses the machine: its ``state``, the ``lifecycle`` of ACL and of the dump."""
