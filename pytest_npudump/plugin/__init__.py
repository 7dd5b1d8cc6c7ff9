"""The pytest plugin: nothing but pytest, found by its entry point ``pytest_npudump.plugin``.

``hooks`` is what every session loads, with ``options``. The first marked test brings in ``runner``, the main
flow, and the ``features`` that it needs. A test is a ``marker/`` that asks and a ``runtest/`` that is run;
``fixture`` is what it sees, ``session_runtime`` what runs its models, ``paths`` where its files lie.
``terminal/`` prints.
``collected`` is a plugin of its own, for the command; ``_compat`` all that is private of pytest.
"""

from pytest_npudump.plugin.hooks import (
    npu_device,
    npu_dump,
    pytest_addhooks,
    pytest_addoption,
    pytest_collection_finish,
    pytest_configure,
    pytest_make_collect_report,
    pytest_report_from_serializable,
    pytest_report_header,
    pytest_report_to_serializable,
    pytest_runtest_call,
    pytest_runtest_teardown,
    pytest_sessionstart,
)

__all__ = [
    "npu_device",
    "npu_dump",
    "pytest_addhooks",
    "pytest_addoption",
    "pytest_collection_finish",
    "pytest_configure",
    "pytest_make_collect_report",
    "pytest_report_from_serializable",
    "pytest_report_header",
    "pytest_report_to_serializable",
    "pytest_runtest_call",
    "pytest_runtest_teardown",
    "pytest_sessionstart",
]
