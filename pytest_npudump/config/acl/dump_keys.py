"""The keys of the ``dump`` object and the values they take (``dump_config_converter.cpp:29-46, 120-138``)."""

from __future__ import annotations

from typing import Final

OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "dump_mode": ("all", "input", "output"),
    "dump_data": ("stats", "tensor"),
    "dump_op_switch": ("off", "on"),
    "dump_level": ("all", "kernel", "op"),
    "dump_debug": ("off", "on"),
    "dump_scene": (
        "aic_err_brief_dump",
        "aic_err_detail_dump",
        "aic_err_norm_dump",
        "lite_exception",
        "watcher",
    ),
    "dump_kernel_data": ("all", "assert", "printf", "tensor", "timestamp"),
    "dump_stats": ("Avg", "L2norm", "Max", "Min", "Nan", "Negative Inf", "Positive Inf"),
}

STRING_KEYS: Final = (
    "dump_path",
    "dump_mode",
    "dump_op_switch",
    "dump_level",
    "dump_scene",
    "dump_data",
    "dump_debug",
    "dump_kernel_data",
    "dump_step",
)
"""In the order in which CANN checks their types."""

EXAMPLES: Final = {
    "dump_path": '"/var/dump"',
    "dump_step": '"0|5-10"',
    "dump_stats": '["Max", "Min"]',
    "dump_list": '[{"model_name": "resnet50", "layer": ["conv1"]}]',
    "model_name": '"resnet50"',
    "layer": '["conv1"]',
    "watcher_nodes": '["conv1"]',
    "optype_blacklist": '[{"name": "Conv2D", "pos": ["input0"]}]',
    "opname_blacklist": '[{"name": "conv1", "pos": ["input0"]}]',
    "opname_range": '[{"begin": "conv1", "end": "relu1"}]',
    "name": '"conv1"',
    "pos": '["input0", "output0"]',
    "begin": '"conv1"',
    "end": '"relu1"',
}

DUMP_KEYS: Final = (*STRING_KEYS, "dump_stats", "dump_list")
ITEM_KEYS: Final = (
    "model_name",
    "layer",
    "watcher_nodes",
    "optype_blacklist",
    "opname_blacklist",
    "opname_range",
)
BLACKLIST_KEYS: Final = ("name", "pos")
RANGE_KEYS: Final = ("begin", "end")

SCENE_TYPES: Final = {
    "lite_exception": "ARGS_EXCEPTION",
    "aic_err_brief_dump": "ARGS_EXCEPTION",
    "aic_err_norm_dump": "EXCEPTION",
    "aic_err_detail_dump": "AIC_ERR_DETAIL_DUMP",
}
"""What each exception scene switches on (``dump_config_converter.cpp:965-976``)."""
