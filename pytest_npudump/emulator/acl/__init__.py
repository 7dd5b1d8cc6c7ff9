"""The module ``acl`` of the emulator: pyACL's names, signatures and return conventions."""

from __future__ import annotations

from typing import NoReturn

from pytest_npudump.emulator.acl import mdl, op, rt, util
from pytest_npudump.emulator.acl._buffers import (
    create_data_buffer,
    destroy_data_buffer,
    get_data_buffer_addr,
    get_data_buffer_size,
    get_data_buffer_size_v2,
    update_data_buffer,
)
from pytest_npudump.emulator.acl._system import (
    app_log,
    data_type_size,
    finalize,
    finalize_reference,
    float16_to_float,
    float_to_float16,
    get_cann_version,
    get_recent_err_msg,
    get_soc_name,
    get_version,
    init,
)
from pytest_npudump.emulator.acl._tensor_descs import (
    create_tensor_desc,
    destroy_tensor_desc,
    get_tensor_desc_dim,
    get_tensor_desc_dim_v2,
    get_tensor_desc_element_count,
    get_tensor_desc_format,
    get_tensor_desc_name,
    get_tensor_desc_num_dims,
    get_tensor_desc_size,
    get_tensor_desc_type,
    set_tensor_const,
    set_tensor_desc_name,
    set_tensor_format,
    set_tensor_origin_format,
    set_tensor_origin_shape,
    set_tensor_place_ment,
    set_tensor_shape,
    set_tensor_storage_format,
    set_tensor_storage_shape,
    trans_tensor_desc_format,
)
from pytest_npudump.emulator.unsupported import AbsentModule, missing

__all__ = [
    "app_log",
    "create_data_buffer",
    "create_tensor_desc",
    "data_type_size",
    "destroy_data_buffer",
    "destroy_tensor_desc",
    "finalize",
    "finalize_reference",
    "float16_to_float",
    "float_to_float16",
    "get_cann_version",
    "get_data_buffer_addr",
    "get_data_buffer_size",
    "get_data_buffer_size_v2",
    "get_recent_err_msg",
    "get_soc_name",
    "get_tensor_desc_dim",
    "get_tensor_desc_dim_v2",
    "get_tensor_desc_element_count",
    "get_tensor_desc_format",
    "get_tensor_desc_name",
    "get_tensor_desc_num_dims",
    "get_tensor_desc_size",
    "get_tensor_desc_type",
    "get_version",
    "init",
    "mdl",
    "op",
    "rt",
    "set_tensor_const",
    "set_tensor_desc_name",
    "set_tensor_format",
    "set_tensor_origin_format",
    "set_tensor_origin_shape",
    "set_tensor_place_ment",
    "set_tensor_shape",
    "set_tensor_storage_format",
    "set_tensor_storage_shape",
    "trans_tensor_desc_format",
    "update_data_buffer",
    "util",
]

__npudump_emulator__ = True

media, blas, prof, himpi, fv = map(AbsentModule, ("acl.media", "acl.blas", "acl.prof", "acl.himpi", "acl.fv"))


def __getattr__(name: str) -> NoReturn:
    missing("acl", name)
