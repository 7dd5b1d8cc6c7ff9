from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_npudump.config.acl_json import dump_section, write_acl_json
from pytest_npudump.config.rule_table import MOST_REASONS
from pytest_npudump.config.torchair import OPTIONS, fill, validate, validate_options
from pytest_npudump.errors import ConfigError, RuntimeUnavailableError
from pytest_npudump.request import DumpRequest, RunRequest

# The expressions that TorchAir itself uses; the first takes exponential time, so the strings stay short.
THEIR_STEP = r"^(((\d+)|(\d+-{0,1}\d+))\|{0,1})*$"
THEIR_LAYER = r'^[0-9a-zA-Z_" "/\\.]*$'


@given(st.text("0123-|\n", max_size=9))
def test_dump_step_takes_what_torchairs_expression_takes(step: str) -> None:
    assert validate_options({"dump_step": step}).accepted is bool(re.match(THEIR_STEP, step))


@given(st.text('aZ_9 "/\\.|-\n', max_size=6))
def test_dump_layer_takes_what_torchairs_expression_takes(layer: str) -> None:
    assert validate_options({"dump_layer": layer}).accepted is bool(re.match(THEIR_LAYER, layer))


def test_a_step_that_would_keep_torchair_busy_for_years_is_answered() -> None:
    assert not validate_options({"dump_step": "1" * 100_000 + "x"}).accepted
    assert not validate_options({"dump_step": "11-11" * 20_000 + "-"}).accepted


@pytest.mark.each(
    ("options", "named"),
    [
        ({"dumpmode": "all"}, 'write "dump_mode"'),
        ({"enable_dump": "true"}, "write true or false"),
        ({"enable_dump": None}, "write true or false"),
        ({"dump_mode": "inputs"}, 'write "input"'),
        ({"dump_path": None}, "FileNotFoundError"),
        ({"dump_path": 0}, "write it as a string"),
        ({"dump_config_path": True}, "write it as a string"),
        ({"dump_step": 3}, "TypeError"),
        ({"dump_step": None}, "TypeError"),
        ({"dump_layer": ["Add"]}, "TypeError"),
    ],
)
def test_a_refusal_names_the_option_and_the_way_out(options: dict[str, Any], named: str) -> None:
    verdict = validate_options(options)
    assert not verdict.accepted
    assert verdict.reasons[0].item == next(iter(options))
    assert named in verdict.message


@pytest.mark.each("options", [{"enable_dump": 1}, {"quant_dumpable": 0.0}, {"dump_config_path": None}])
def test_what_python_finds_equal_to_a_choice_is_taken(options: dict[str, Any]) -> None:
    assert validate_options(options).accepted


@pytest.mark.each("text", [b"[]", b"1", b"{", b""])
def test_what_is_no_object_is_refused(text: bytes) -> None:
    assert not validate(text).accepted


@pytest.mark.each(
    ("options", "warning"),
    [
        ({}, "nothing is dumped"),
        ({"enable_dump": True, "dump_mode": "all", "quant_dumpable": True}, "quant_dumpable: lost"),
        ({"enable_dump": True, "dump_mode": "all", "dump_step": "5-3"}, "dump_step[0]"),
        ({"enable_dump": True, "dump_mode": "all", "dump_step": "1|"}, "aclmdlSetDump refuses it"),
        ({"enable_dump": True, "dump_mode": "all", "dump_step": "1\n"}, "ends in a line end"),
        ({"enable_dump": True}, "dump_mode"),
    ],
)
def test_what_is_lost_behind_torchair_is_said(options: dict[str, Any], warning: str) -> None:
    verdict = validate_options(options)
    assert verdict.accepted
    assert [text for text in verdict.warnings if warning in text]


def test_a_flood_of_mistakes_is_cut() -> None:
    assert len(validate_options({f"dump_mode{n}": 1 for n in range(5000)}).reasons) == MOST_REASONS
    verdict = validate_options({"dump_step": "|".join(["2-1"] * 99)})
    assert verdict.accepted
    assert len(verdict.warnings) < 2 * MOST_REASONS


@given(
    st.dictionaries(st.sampled_from([*OPTIONS, "x"]), st.none() | st.booleans() | st.integers() | st.text())
)
def test_any_object_gets_a_verdict(options: dict[str, Any]) -> None:
    text = json.dumps(options).encode()
    verdict = validate(text)
    assert verdict.accepted is not bool(verdict.reasons)


class Option:
    """One option: checks what it is given, and hands it on as text."""

    def __init__(self, default: object, check: Any, error: type[Exception] = ValueError) -> None:
        self._value = default
        self._check = check
        self._error = error

    @property
    def value(self) -> str | None:
        if self._value is None:
            return None
        return str(int(self._value)) if isinstance(self._value, bool) else str(self._value)

    @value.setter
    def value(self, new: object) -> None:
        if not self._check(new):
            raise self._error(f"Please set a legal value, but got {new!r}")
        self._value = new


def one_of(default: object, *allowed: object) -> Option:
    return Option(default, lambda new: new in allowed)


def switch() -> Option:
    return Option(default=False, check=lambda new: new in (False, True))


class DataDumpConfig:
    """``_DataDumpConfig``; ``without`` names options that an older version lacks."""

    def __init__(self, *without: str) -> None:
        options = {
            "enable_dump": switch(),
            "dump_path": Option("./", lambda new: Path(new).is_dir(), FileNotFoundError),
            "dump_mode": one_of("all", "input", "output", "all"),
            "quant_dumpable": switch(),
            "dump_step": Option("", lambda new: re.match(THEIR_STEP, new) is not None),
            "dump_layer": Option("", lambda new: re.match(THEIR_LAYER, new) is not None),
            "dump_data": one_of("tensor", "tensor", "stats"),
            "dump_config_path": Option(
                None,
                lambda new: new is None or (new.endswith(".json") and Path(new).is_file()),
                FileNotFoundError,
            ),
        }
        self.__dict__.update({name: option for name, option in options.items() if name not in without})

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self.__dict__:
            raise ValueError(f"_DataDumpConfig has no option {name}, all options {[*self.__dict__]}")
        self.__dict__[name].value = value

    def values(self) -> dict[str, str | None]:
        return {name: option.value for name, option in self.__dict__.items()}


class CompilerConfig:
    def __init__(self, *without: str) -> None:
        self.mode = one_of("max-autotune", "max-autotune", "reduce-overhead", "npugraph_ex")
        self.dump_config = DataDumpConfig(*without)


@pytest.fixture
def acl_json(tmp_path: Path) -> Callable[..., Path]:
    """Write the acl.json of a request."""

    def write(**wanted: Any) -> Path:
        path = tmp_path / "acl.json"
        dump = tmp_path / "dump"
        dump.mkdir(exist_ok=True)
        write_acl_json(path, dump_section(RunRequest(DumpRequest(**wanted), dump)))
        return path

    return write


def test_acl_json_is_handed_on_as_it_is_and_what_was_asked_for_before_replaced(
    acl_json: Any, tmp_path: Path
) -> None:
    """Options would replace the file as soon as a graph is compiled."""
    config, path = CompilerConfig(), acl_json(layers=("conv1",))
    other = tmp_path / "other.json"
    other.write_text("{}", encoding="utf-8")
    for _ in range(2):
        assert fill(config, path) is config
        values = config.dump_config.values()
        assert (values["dump_config_path"], values["enable_dump"]) == (str(path), "0")
        config.dump_config.enable_dump = True
        config.dump_config.dump_config_path = str(other)


@pytest.mark.each("scope", [True, False])
def test_options_say_the_same_where_the_file_cannot(acl_json: Callable[..., Path], *, scope: bool) -> None:
    config = CompilerConfig() if scope else CompilerConfig("dump_config_path")
    path = acl_json(layers=("conv1", "block/fc.2"), dump_step="0|2-5", dump_mode="all")
    values = fill(config, path, scope=scope).dump_config.values()
    assert values.pop("dump_config_path", None) is None
    assert values == {
        "enable_dump": "1",
        "dump_path": str(path.parent / "dump"),
        "dump_mode": "all",
        "quant_dumpable": "0",
        "dump_step": "0|2-5",
        "dump_layer": "conv1 block/fc.2",
        "dump_data": "stats",
    }


def test_a_configuration_used_again_keeps_nothing_of_the_first_use(acl_json: Callable[..., Path]) -> None:
    config = CompilerConfig("dump_config_path")
    fill(config, acl_json(layers=("conv1",), dump_step="1"))
    values = fill(config, acl_json()).dump_config.values()
    assert (values["dump_step"], values["dump_layer"], values["dump_mode"]) == ("", "", "output")


@pytest.mark.each(
    ("wanted", "named"),
    [
        ({"dump_stats": ("Max",)}, "dump_stats"),
        ({"dump_level": "op"}, "dump_level"),
        ({"model_name": "graph_1", "layers": ("a",)}, "model_name"),
        ({"dump_level": "op", "opname_blacklist": ({"name": "a"},)}, "dump_level, opname_blacklist"),
        ({"scene": "op"}, "scene='op'"),
    ],
)
def test_options_that_would_lose_part_of_the_dump_are_refused(
    acl_json: Callable[..., Path], wanted: dict[str, Any], named: str
) -> None:
    path = acl_json(**wanted)
    with pytest.raises(ConfigError, match=f"{re.escape(named)}: this TorchAir cannot be told so"):
        fill(CompilerConfig(), path, scope=True)
    fill(CompilerConfig(), path)


def test_layers_that_dump_layer_cannot_name_and_modes_without_an_acl_dump_are_refused(acl_json: Any) -> None:
    for layer in ("conv 1", "conv-1", "größe"):
        with pytest.raises(ConfigError, match="dump_layer"):
            fill(CompilerConfig(), acl_json(layers=(layer,)), scope=True)
    for mode in ("reduce-overhead", "npugraph_ex"):
        config = CompilerConfig()
        config.mode.value = mode
        with pytest.raises(ConfigError, match=f"'{mode}', in which TorchAir saves torch files"):
            fill(config, acl_json())


def test_what_is_no_configuration_or_lacks_a_file_or_an_option_is_named(
    acl_json: Any, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"dump_config_path: .* is not an existing file"):
        fill(CompilerConfig(), tmp_path / "acl.json")
    with pytest.raises(ConfigError, match=r"dict: not a torchair\.CompilerConfig"):
        fill({}, acl_json())
    with pytest.raises(ConfigError, match=r"dump_config\.dump_data = 'stats'.*has no option dump_data"):
        fill(CompilerConfig("dump_config_path", "dump_data"), acl_json())


def test_an_option_that_keeps_something_else_is_found_out(acl_json: Callable[..., Path]) -> None:
    class Deaf(CompilerConfig):
        def __init__(self) -> None:
            super().__init__()
            self.dump_config.__dict__["dump_config_path"] = type(
                "Deaf", (), {"value": property(str, lambda *_: None)}
            )()

    with pytest.raises(RuntimeUnavailableError, match=r"dump_config_path is .* after it was set"):
        fill(Deaf(), acl_json())


def test_a_configuration_is_made_where_none_is_given(acl_json: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("torchair")
    module.CompilerConfig = CompilerConfig  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchair", module)
    path = acl_json()
    assert fill(None, path).dump_config.dump_config_path.value == str(path)


def test_without_torchair_the_way_out_is_named(acl_json: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchair", None)
    with pytest.raises(
        RuntimeUnavailableError, match=r"give npu_dump\.torchair_config\(\) the configuration"
    ):
        fill(None, acl_json())


class GraphDump:
    """``_Dump`` of TorchAir's ``debug_config.py``."""

    def __init__(self, kind: str | None = None, path: str | None = None) -> None:
        self.type = one_of(kind, "txt", "pbtxt", "py")
        self.path = path

    def __setattr__(self, name: str, value: object) -> None:
        if name == "type" and "type" in self.__dict__:
            self.type.value = value
        else:
            self.__dict__[name] = value


def test_graphs_are_asked_for_beside_the_dump_and_again_by_each_test(acl_json: Any, tmp_path: Path) -> None:
    config = CompilerConfig()
    config.debug = SimpleNamespace(graph_dump=GraphDump())  # type: ignore[attr-defined]
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        fill(config, acl_json().rename(tmp_path / folder / "acl.json"))
        dump = config.debug.graph_dump  # type: ignore[attr-defined]
        assert (dump.type.value, dump.path) == ("txt", str(tmp_path / folder / "torchair"))


def test_graphs_that_the_user_wants_elsewhere_stay_there(acl_json: Callable[..., Path]) -> None:
    config = CompilerConfig()
    config.debug = SimpleNamespace(graph_dump=GraphDump("pbtxt", "/mine"))  # type: ignore[attr-defined]
    fill(config, acl_json())
    dump = config.debug.graph_dump  # type: ignore[attr-defined]
    assert (dump.type.value, dump.path) == ("pbtxt", "/mine")
