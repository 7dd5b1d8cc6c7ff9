"""pyACL, and whatever stands in for it: the ``adapter``, a loaded ``model``, ACL's ``calls`` and their codes.

``observed`` calls are those of the test itself; ``receiving`` is the dump by callback.
"""
