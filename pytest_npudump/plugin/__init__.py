"""The pytest plugin: nothing but pytest, found by its entry point ``pytest_npudump.plugin``."""

from pytest_npudump.plugin.hooks import (
    npu_dump,
    pytest_addoption,
    pytest_collection_finish,
    pytest_configure,
    pytest_make_collect_report,
    pytest_report_header,
    pytest_runtest_call,
    pytest_runtest_teardown,
    pytest_sessionstart,
)

__all__ = [
    "npu_dump",
    "pytest_addoption",
    "pytest_collection_finish",
    "pytest_configure",
    "pytest_make_collect_report",
    "pytest_report_header",
    "pytest_runtest_call",
    "pytest_runtest_teardown",
    "pytest_sessionstart",
]
