"""``npudump config``: what a runtime would say of a configuration, and the configuration of a test.

``collected`` is the pytest plugin by which ``show`` asks a collection what its tests want.
"""

DESCRIBE_TO = "--npudump-describe-to"
"""The option by which ``show`` names the file that ``collected`` writes; not in ``--help``."""
