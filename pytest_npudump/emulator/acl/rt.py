"""``acl.rt``: devices, contexts, streams, events, callbacks and memory."""

from __future__ import annotations

from typing import NoReturn

from pytest_npudump.emulator.acl._devices import (
    create_context,
    destroy_context,
    get_context,
    get_device,
    get_device_count,
    get_device_sat_mode,
    get_mem_info,
    get_run_mode,
    reset_device,
    reset_device_force,
    set_context,
    set_device,
    set_device_sat_mode,
    synchronize_device,
)
from pytest_npudump.emulator.acl._events import (
    create_event,
    create_event_with_flag,
    destroy_event,
    event_elapsed_time,
    query_event,
    query_event_status,
    query_event_wait_status,
    record_event,
    reset_event,
    stream_wait_event,
    synchronize_event,
    synchronize_event_with_timeout,
)
from pytest_npudump.emulator.acl._memory_calls import (
    free,
    free_host,
    malloc,
    malloc_align32,
    malloc_cached,
    malloc_host,
    memcpy,
    memcpy_async,
    memset,
    memset_async,
)
from pytest_npudump.emulator.acl._reports import (
    launch_callback,
    process_report,
    subscribe_report,
    unsubscribe_report,
)
from pytest_npudump.emulator.acl._streams import (
    create_stream,
    create_stream_with_config,
    destroy_stream,
    get_stream_overflow_switch,
    set_stream_overflow_switch,
    stream_query,
    synchronize_stream,
    synchronize_stream_with_timeout,
)
from pytest_npudump.emulator.unsupported import missing

__all__ = [
    "create_context",
    "create_event",
    "create_event_with_flag",
    "create_stream",
    "create_stream_with_config",
    "destroy_context",
    "destroy_event",
    "destroy_stream",
    "event_elapsed_time",
    "free",
    "free_host",
    "get_context",
    "get_device",
    "get_device_count",
    "get_device_sat_mode",
    "get_mem_info",
    "get_run_mode",
    "get_stream_overflow_switch",
    "launch_callback",
    "malloc",
    "malloc_align32",
    "malloc_cached",
    "malloc_host",
    "memcpy",
    "memcpy_async",
    "memset",
    "memset_async",
    "process_report",
    "query_event",
    "query_event_status",
    "query_event_wait_status",
    "record_event",
    "reset_device",
    "reset_device_force",
    "reset_event",
    "set_context",
    "set_device",
    "set_device_sat_mode",
    "set_stream_overflow_switch",
    "stream_query",
    "stream_wait_event",
    "subscribe_report",
    "synchronize_device",
    "synchronize_event",
    "synchronize_event_with_timeout",
    "synchronize_stream",
    "synchronize_stream_with_timeout",
    "unsubscribe_report",
]


def __getattr__(name: str) -> NoReturn:
    missing("acl.rt", name)
