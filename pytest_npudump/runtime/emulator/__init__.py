"""The emulator in pyACL's place: its ``provider``, and the ``finder`` by which tests ``import acl``."""
