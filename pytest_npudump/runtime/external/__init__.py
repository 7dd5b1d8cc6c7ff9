"""Programs that read an acl.json: ``run`` them under a ``placed_config``, and end their ``processes``."""
