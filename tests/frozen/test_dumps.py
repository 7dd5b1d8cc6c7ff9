"""What ``npudump`` says of real dumps, word for word."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(__file__).parents[1] / "data"
TREES = sorted(path.name for path in (DATA / "trees").iterdir())
FORMATS = sorted(path.name for path in (DATA / "dump/formats").iterdir() if not path.suffix)
FORMS = ("", " --json -", " -v --preset strict")


@pytest.mark.parametrize("tree", TREES)
def test_a_tree_is_listed_read_compared_and_converted(frozen: Callable[..., None], tree: str) -> None:
    path = f"{{tests}}/data/trees/{tree}"
    commands = [f"npudump ls {path}", f"npudump ls {path} --json -", f"npudump ls --stats {path}"]
    commands += [
        f"npudump ls --stats {path} --json -",
        f"npudump compare {path} {path}",
    ]
    commands += [f"npudump convert {path} -o made --to safetensors"]
    frozen(f"tree-{tree}", commands)


PAIRS = {
    "acl-stats-acl-tensor": ("trees/acl-stats", "trees/acl-tensor"),
    "mixed-op-long-name": ("trees/acl-mixed-op", "trees/acl-long-name"),
    "mindspore-dtypes-long_names": ("trees/mindspore-dtypes", "trees/mindspore-long_names_mapping"),
    "reference": ("reference/golden", "reference/regressed"),
    "dtypes-1-2": ("trees/acl-dtypes/1_FLOAT", "trees/acl-dtypes/2_FLOAT16"),
    "stats-host": ("trees/acl-stats-host", "trees/acl-stats-mixed-dtypes"),
    "nothing": ("trees/acl-stats", "no-such-folder"),
    "overflow": ("dump/overflow/aic", "dump/overflow/aiv"),
    "mindspore-dtypes": ("trees/mindspore-dtypes", "trees/mindspore-dtypes"),
    "aic": ("dump/overflow/aic", "dump/overflow/aic"),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_two_dumps_are_compared_in_each_form(frozen: Callable[..., None], pair: str) -> None:
    one, other = (f"{{tests}}/data/{side}" for side in PAIRS[pair])
    frozen(f"pair-{pair}", [f"npudump compare {one} {other}{form}" for form in FORMS])


def test_layouts_of_a_device_become_the_host_s(frozen: Callable[..., None]) -> None:
    paths = [f"{{tests}}/data/dump/formats/{name}" for name in FORMATS]
    frozen("formats", [f"npudump {verb} {path}" for path in paths for verb in ("ls", "ls --projections")])


def test_each_type_has_its_statistics(frozen: Callable[..., None]) -> None:
    frozen("dtypes", ["npudump ls --stats {tests}/data/dump/dtypes", "npudump ls {tests}/data/dump/dtypes"])


def test_overflow_records_are_read(frozen: Callable[..., None]) -> None:
    records = ("aic", "aic_v1", "aicpu", "aiv", "old", "sdma")
    forms = ("", " --json -")
    frozen("overflow", [f"npudump ls {{tests}}/data/dump/overflow/{r}{f}" for r in records for f in forms])


def _changed(folder: Path) -> None:
    """Copy a tree of statistics, with one figure changed, one row lost and one file cut."""
    shutil.copytree(DATA / "trees/acl-stats", folder / "stats")
    files = sorted(path for path in (folder / "stats").rglob("*.csv"))
    rows = files[0].read_text().splitlines()
    cells = rows[1].split(",")
    cells[6] = "12.5"
    files[0].write_text("\n".join([rows[0], ",".join(cells), *rows[2:]]) + "\n")
    files[1].unlink()
    files[2].write_bytes(files[2].read_bytes()[:-20])


def test_a_dump_that_lost_changed_and_broke(frozen: Callable[..., None]) -> None:
    golden = "{tests}/data/trees/acl-stats"
    commands = [f"npudump compare {golden} stats{form}" for form in FORMS]
    frozen(
        "changed-stats",
        [_changed, *commands, f"npudump compare {golden} stats --plots made", "npudump ls stats"],
    )


CONFIGURATIONS = {
    "good": '{"dump": {"dump_path": "/tmp", "dump_mode": "all", "dump_list": [{"model_name": "net"}]}}',
    "watcher": '{"dump": {"dump_path": "/tmp", "dump_scene": "watcher", "dump_list": []}}',
    "no-json": '{"dump": {',
    "unknown": '{"dump": {"dump_path": "/tmp", "dump_modes": "all", "dump_step": "1-0"}}',
    "range": '{"dump": {"dump_path": "/tmp", "dump_list": [{"model_name": "n", "opname_range": [{"begin": "a"}]}]}}',
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_is_checked(frozen: Callable[..., None], name: str) -> None:
    def write(folder: Path) -> None:
        folder.joinpath("acl.json").write_text(CONFIGURATIONS[name])

    frozen(f"config-{name}", [write, "npudump config check acl.json"])
