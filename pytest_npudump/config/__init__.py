"""Configurations that switch a runtime's dump on: written from a request, and checked by its own rules.

Written: ``acl_json`` (CANN's acl.json), ``data_dump`` (MindSpore's), and an object of ``torchair``. Judged,
each by tables that ``rule_table`` interprets: ``adump`` is the checker inside ``aclmdlSetDump``, ``ge``
that of the graph engine (both have ``acl_keys``), ``mindspore`` and ``torchair`` those of frameworks;
``check`` chooses for a file. ``json_file`` reads as their C++ does, ``cann`` the release whose rules hold.
"""
