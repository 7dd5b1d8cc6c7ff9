"""Programs that read an acl.json: ``run`` them under a ``placed_config``, and end their ``processes``.

``read_trace`` says whether a program has read its configuration.
"""
