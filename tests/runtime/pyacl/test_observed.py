"""Calls of pyACL that are looked at while they pass, against a stand-in that records them."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_npudump.runtime.base import Evidence
from pytest_npudump.runtime.pyacl.observed import ObservedCalls


class Acl:
    """A module ``acl`` whose functions return what ``answers`` says, else success."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {"load_from_file": (7, 0), "load_from_mem": (8, 0)}
        self.calls: list[tuple[Any, ...]] = []
        names = ("set_dump", "finalize_dump", "load_from_file", "load_from_mem", "execute", "execute_async")
        self.mdl = SimpleNamespace(**{name: self._function(name) for name in names})
        self.op = SimpleNamespace(execute_v2=self._function("op"))
        self.rt = SimpleNamespace(synchronize_stream=self._function("synchronize"))

    def _function(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            self.calls.append((name, *arguments))
            return self.answers.get(name, 0)

        return call


@pytest.fixture
def acl() -> Acl:
    return Acl()


@pytest.fixture
def watched(acl: Acl) -> tuple[Acl, Evidence, ObservedCalls]:
    evidence = Evidence()
    calls = ObservedCalls(acl, "ours".__eq__, evidence)
    calls.watch()
    return acl, evidence, calls


def test_a_model_loaded_and_run_behind_the_configuration_is_evidence(watched: Any) -> None:
    acl, evidence, _ = watched
    assert acl.mdl.set_dump("ours") == 0
    assert acl.mdl.load_from_file("m.om") == (7, 0)
    assert evidence.shown == []
    for _ in range(3):
        assert acl.mdl.execute(7, 1, 2) == 0
    assert evidence.shown == ["acl.execute ran a model that was loaded under the dump"]
    assert acl.calls[-1] == ("execute", 7, 1, 2)


@pytest.mark.parametrize(
    ("answers", "path", "model"),
    [
        ({"set_dump": 100009}, "ours", 7),
        ({}, "another", 7),
        ({"load_from_file": (7, 145002)}, "ours", 7),
        ({"execute": 145003}, "ours", 7),
        ({"execute": 100000}, "ours", 7),
        ({}, "ours", 9),
    ],
    ids=["refused", "another-file", "not-loaded", "not-run", "refused-on-the-host", "another-model"],
)
def test_anything_less_is_none(watched: Any, answers: dict[str, Any], path: str, model: int) -> None:
    acl, evidence, _ = watched
    acl.answers |= answers
    acl.mdl.set_dump(path)
    acl.mdl.load_from_file("m.om")
    acl.mdl.execute(model, 1, 2)
    assert (evidence.shown, evidence.failed) == ([], [])
    assert not evidence.missing or "execute" not in answers


def test_what_runs_behind_the_end_of_the_dump_is_none(watched: Any) -> None:
    acl, evidence, _ = watched
    acl.mdl.set_dump("ours")
    acl.mdl.load_from_mem(1, 2)
    acl.mdl.finalize_dump()
    acl.mdl.execute(8, 1, 2)
    assert evidence.shown == []
    (words,) = evidence.missing
    assert words.startswith("model 8 ran in the test's own process while no dump was on ")


def test_a_model_from_before_the_dump_is_evidence_against_it_and_of_an_earlier_one_too() -> None:
    rows = [("", between) for between in ((), ("ours",), ("another", "ours"), ("finalize", "ours"))]
    rows += [("ours", between) for between in (("another", "ours"), ("finalize", "ours"))]
    for (before, between), code in product(rows, (0, 507011, 507899)):
        acl, evidence = Acl(), Evidence()
        ObservedCalls(acl, "ours".__eq__, evidence).watch()
        if before:
            acl.mdl.set_dump(before)
        acl.mdl.load_from_file("nets/m.om")
        for path in between if before else ("ours", *between):
            assert (acl.mdl.finalize_dump() if path == "finalize" else acl.mdl.set_dump(path)) == 0
        acl.answers["execute"] = code
        acl.mdl.execute(7, 1, 2)
        (words,) = evidence.missing
        assert words.startswith("m.om was loaded before the dump was set ")
        assert (evidence.shown, evidence.failed) == ([], [])


def test_setting_the_same_dump_again_leaves_its_models_under_it(watched: Any) -> None:
    acl, evidence, _ = watched
    acl.mdl.set_dump("ours")
    acl.mdl.load_from_file("nets/m.om")
    acl.mdl.set_dump("ours")
    acl.mdl.execute(7, 1, 2)
    assert (len(evidence.shown), evidence.missing) == (1, [])


def test_an_id_that_is_given_out_again_is_another_model(watched: Any) -> None:
    acl, evidence, _ = watched
    acl.mdl.set_dump("ours")
    acl.mdl.load_from_file("a.om")
    acl.mdl.set_dump("another")
    acl.mdl.load_from_file("b.om")
    acl.mdl.execute(7, 1, 2)
    assert evidence.models == ["a.om"]
    assert evidence.missing[0].startswith("b.om ran in the test's own process while no dump was on ")


def test_a_function_of_the_test_s_own_that_takes_the_dump_leaves_none(acl: Acl) -> None:
    acl.mdl.dump_reg_callback = acl._function("dump_reg_callback")
    evidence = Evidence()
    ObservedCalls(acl, "ours".__eq__, evidence).watch()
    acl.answers["dump_reg_callback"] = 500001
    acl.mdl.dump_reg_callback(None, 0)
    assert evidence.missing == []
    acl.answers["dump_reg_callback"] = 0
    acl.mdl.dump_reg_callback(print, 0)
    (reason,) = evidence.missing
    assert "a function of its own with acl.mdl.dump_reg_callback()" in reason


@pytest.mark.parametrize("code", [507011, 507015, 507899])
def test_an_error_of_the_device_is_kept_and_what_a_wait_for_a_stream_tells(watched: Any, code: int) -> None:
    acl, evidence, _ = watched
    acl.answers |= {"execute": code, "op": code, "synchronize": code}

    def calls() -> list[int]:
        acl.mdl.load_from_file("m.om")
        return [acl.mdl.execute(7, 1, 2), acl.op.execute_v2("Add"), acl.rt.synchronize_stream(1)]

    calls()
    assert evidence.failed == []
    acl.mdl.set_dump("ours")
    assert calls() == [code] * 3
    names = ("execute", "execute_v2", "synchronize_stream")
    told = [f"acl.{name} returned {code}" for name in names]
    assert evidence.failed == told
    for quiet in (507046, 0):  # still running; success
        acl.answers["synchronize"] = quiet
        assert acl.rt.synchronize_stream(1) == quiet
    assert evidence.failed == told


def test_every_function_is_put_back(acl: Acl) -> None:
    before = {**vars(acl.mdl), **vars(acl.op), **vars(acl.rt)}
    calls = ObservedCalls(acl, "ours".__eq__, Evidence())
    calls.watch()
    assert acl.mdl.execute is not before["execute"]
    calls.stop()
    assert {**vars(acl.mdl), **vars(acl.op), **vars(acl.rt)} == before
    calls.stop()


def test_a_function_that_a_fixture_replaced_is_left_alone_and_never_wrapped_twice(watched: Any) -> None:
    acl, _, calls = watched
    ours = acl.mdl.execute
    acl.mdl.execute = replacement = lambda *_: 1
    calls.stop()
    assert acl.mdl.execute is replacement
    acl.mdl.execute = ours  # as monkeypatch does at its end
    evidence = Evidence()
    again = ObservedCalls(acl, "ours".__eq__, evidence)
    again.watch()
    again.stop()
    assert acl.mdl.execute.__name__ == "call"


def test_a_module_without_single_operators_or_that_cannot_be_changed_is_no_error() -> None:
    class Fixed:
        __slots__ = ()

        def execute(self, *_: object) -> int:
            return 0

    calls = ObservedCalls(SimpleNamespace(mdl=Fixed()), bool, Evidence())
    calls.watch()
    calls.stop()
