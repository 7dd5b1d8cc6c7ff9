"""Run with TorchAir's wheel and torch on the path: fill the real configuration object, and read it back.

Only packages that need no device are imported: the ``__init__`` of torchair itself loads libraries of CANN.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType

from pytest_npudump.config.torchair import fill
from pytest_npudump.errors import ConfigError


def compiler_config() -> object:
    spec = importlib.util.find_spec("torch_npu")
    folder = Path(spec.origin).parent / "dynamo" / "torchair"
    for name in ("torchair", "torchair.core", "torchair._utils", "torchair.configs"):
        package = ModuleType(name)
        package.__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    return importlib.import_module("torchair.configs.compiler_config").CompilerConfig


def filled(make: object, acl_json: Path, *, scope: bool) -> object:
    try:
        config = fill(make(), acl_json, scope=scope)
    except ConfigError as error:
        return {"refused": str(error)}
    graphs = config.debug.graph_dump
    return config.dump_config.as_dict()[1] | {"graphs": graphs.full_path("dynamo_optimized_graph_1")}


def taken(make: object, options: dict[str, object]) -> str:
    """Return "" if the real object takes the options one after another, else the name of its error."""
    config = make()
    try:
        for name, value in options.items():
            setattr(config.dump_config, name, value)
    except Exception as error:  # noqa: BLE001 - whatever it raises is its answer
        return type(error).__name__
    return ""


def main() -> None:
    work = json.load(sys.stdin)
    make = compiler_config()
    answers = {"filled": [filled(make, Path(path), scope=scope) for path, scope in work["fill"]], "taken": []}
    for case in work["options"]:
        os.chdir(case["folder"])
        answers["taken"].append(taken(make, case["options"]))
    json.dump(answers, sys.stdout)


main()
