"""The pytest plugin: nothing but pytest, found by its entry point ``pytest_npudump.plugin``.

``hooks`` is what every session loads, with ``options``; ``runner`` comes in with the first marked test. A
test is a ``marker/`` that asks and a ``runtest/`` that is run, and ``reported``; ``fixture`` is what it sees.
``repetitions`` are tests that other plugins repeat.
``device_turns`` shares devices with other processes. ``isolation/`` gives it processes of its own,
``session_runtime`` the runtime. ``keeper`` writes what a session keeps, ``ci/`` serves who runs it. ``paths``
and ``memory_folder`` are where files lie, ``terminal/`` prints. ``collected`` and ``golden_owners`` are
plugins of their own, for the command; ``_compat`` all that is private of pytest.
"""

from pytest_npudump.plugin.hooks import (
    npu_device,
    npu_dump,
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
