"""acl.json: written from a request (``acl_json``), and judged as CANN judges it.

``adump`` is the checker inside ``aclmdlSetDump``, with a module for each of its steps; ``ge`` the one that
the graph engine adds; ``profile`` and ``installed`` say which release's rules hold, ``soc`` and
``collect_path`` what dumps less.
"""
