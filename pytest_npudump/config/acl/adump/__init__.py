"""adump: what ``aclmdlSetDump`` and ``aclInit`` check of an acl.json, by release.

``checker`` is the way in. CANN 8.5 and 9.0 have ``legacy_rules``; 9.1 has ``type_rules``, which come first,
and ``value_rules``. ``without_effect`` is what adump accepts, and yet does nothing or less than it says.
"""
