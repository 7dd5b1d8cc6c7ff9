"""What adapters over ACL share, whatever client calls it.

``config`` writes the acl.json, ``return_codes`` are ACL's answers, ``overflow_mode`` what an overflow dump
depends on.
"""
