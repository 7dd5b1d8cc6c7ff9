"""The emulator in pyACL's place: its ``provider``, by which tests ``import acl``, and its ``adapter``."""
