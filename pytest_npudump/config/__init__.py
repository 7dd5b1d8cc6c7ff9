"""What a runtime reads to switch a dump on: written from a request, and checked by the runtime's own rules.

A folder a reader: ``acl/`` (CANN's acl.json), ``mindspore/`` (data_dump.json), ``torchair/``. ``text/``
reads JSON and patterns as these do, ``check`` chooses the checker, ``checker_verdict`` is what each of them
returns.
"""
