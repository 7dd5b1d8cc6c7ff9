"""acl.json: written from a request (``acl_json``), and judged as CANN judges it.

``adump/`` is the checker inside ``aclmdlSetDump``: of a ``config_file``, with ``steps`` for the grammar of
its steps. ``ge`` is the one that the graph engine adds. Both know ``dump_keys``, and have ``path_checks``.
``profile`` and ``installed`` say which release's rules hold, ``soc`` and ``collect_path`` what dumps less.
"""
