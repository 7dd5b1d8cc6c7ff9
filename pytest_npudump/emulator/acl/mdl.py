"""``acl.mdl``: models, their descriptions, datasets, execution and the dump."""

from __future__ import annotations

from typing import NoReturn

from pytest_npudump.emulator.acl._datasets import (
    add_dataset_buffer,
    create_dataset,
    destroy_dataset,
    get_dataset_buffer,
    get_dataset_num_buffers,
    get_dataset_tensor_desc,
    set_dataset_tensor_desc,
)
from pytest_npudump.emulator.acl._execution import execute, execute_async, execute_v2
from pytest_npudump.emulator.acl._gears import (
    get_dynamic_batch,
    get_dynamic_hw,
    get_input_dynamic_dims,
    get_input_dynamic_gear_count,
    set_dynamic_batch_size,
    set_dynamic_hw_size,
    set_input_dynamic_dims,
)
from pytest_npudump.emulator.acl._load import (
    load_from_file,
    load_from_file_with_mem,
    load_from_mem,
    load_from_mem_with_mem,
    query_size,
    query_size_from_mem,
    unload,
)
from pytest_npudump.emulator.acl._load_config import (
    create_config_handle,
    destroy_config_handle,
    load_with_config,
    set_config_opt,
)
from pytest_npudump.emulator.acl._model_descs import (
    create_desc,
    destroy_desc,
    get_cur_output_dims,
    get_desc,
    get_desc_from_file,
    get_desc_from_mem,
    get_input_data_type,
    get_input_dims,
    get_input_dims_v2,
    get_input_format,
    get_input_index_by_name,
    get_input_name_by_index,
    get_input_size_by_index,
    get_num_inputs,
    get_num_outputs,
    get_output_data_type,
    get_output_dims,
    get_output_format,
    get_output_index_by_name,
    get_output_name_by_index,
    get_output_size_by_index,
    get_tensor_real_name,
)
from pytest_npudump.emulator.machine.parse_tuple import parse
from pytest_npudump.emulator.process import lifecycle
from pytest_npudump.emulator.process.state import process
from pytest_npudump.emulator.unsupported import missing

__all__ = [
    "add_dataset_buffer",
    "create_config_handle",
    "create_dataset",
    "create_desc",
    "destroy_config_handle",
    "destroy_dataset",
    "destroy_desc",
    "execute",
    "execute_async",
    "execute_v2",
    "finalize_dump",
    "get_cur_output_dims",
    "get_dataset_buffer",
    "get_dataset_num_buffers",
    "get_dataset_tensor_desc",
    "get_desc",
    "get_desc_from_file",
    "get_desc_from_mem",
    "get_dynamic_batch",
    "get_dynamic_hw",
    "get_input_data_type",
    "get_input_dims",
    "get_input_dims_v2",
    "get_input_dynamic_dims",
    "get_input_dynamic_gear_count",
    "get_input_format",
    "get_input_index_by_name",
    "get_input_name_by_index",
    "get_input_size_by_index",
    "get_num_inputs",
    "get_num_outputs",
    "get_output_data_type",
    "get_output_dims",
    "get_output_format",
    "get_output_index_by_name",
    "get_output_name_by_index",
    "get_output_size_by_index",
    "get_tensor_real_name",
    "init_dump",
    "load_from_file",
    "load_from_file_with_mem",
    "load_from_mem",
    "load_from_mem_with_mem",
    "load_with_config",
    "query_size",
    "query_size_from_mem",
    "set_config_opt",
    "set_dataset_tensor_desc",
    "set_dump",
    "set_dynamic_batch_size",
    "set_dynamic_hw_size",
    "set_input_dynamic_dims",
    "unload",
]

_QUEUES = "a model with queues takes its data from the device's own scheduler"


def init_dump(*_: object) -> int:
    """``() -> ret``."""
    with process().lock:
        return lifecycle.init_dump(process())


def set_dump(*args: object) -> int:
    """``([path]) -> ret``; without a path 100000, as for NULL."""
    parsed = parse("acl.mdl.set_dump", "|s", args)
    with process().lock:
        return lifecycle.set_dump(process(), parsed[0] if parsed else None)


def finalize_dump(*_: object) -> int:
    """``() -> ret``."""
    with process().lock:
        return lifecycle.finalize_dump(process())


def __getattr__(name: str) -> NoReturn:
    missing("acl.mdl", name, _QUEUES if name == "load_from_file_with_q" else "")
