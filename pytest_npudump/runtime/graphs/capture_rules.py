"""What a dump makes of captured graphs (``NPUGraph``), by its configuration and the release of CANN.

While a stream is captured CANN dumps no statistics and looks for no overflow, and says nothing. A dump of
tensors becomes a part of the graph (``DumpDataRecordInCaptureStream`` of adump, 9.1.0).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npudump.config.cann import profile_for
from pytest_npudump.language.translation import mark

if TYPE_CHECKING:
    from pathlib import Path

_UNSEEN_BY_DUMP = frozenset({"8.5.0", "9.0.0"})
"""Rule sets of the releases whose adump is not known to dump a captured stream."""

_EAGERLY = "run the model eagerly under the marker"
_ONE_REPLAY = (
    'dump_data="tensor" (CANN 9.1.0 or later), with the graph captured inside the test and replayed once'
)
_GRAPH_STATS = (
    f"CANN computes no statistics of operators in a captured graph and reports no error; {_EAGERLY}, or take "
    f"{_ONE_REPLAY}"
)
_GRAPH_OVERFLOW = f"CANN looks for no overflow in a captured graph and reports no error; {_EAGERLY}"
_GRAPH_UNKNOWN = f"whether CANN's watcher sees operators in a captured graph is not known; {_EAGERLY}"
_GRAPH_IN_OLD_CANN = mark(
    "whether CANN {version} dumps operators in a captured graph is not known (9.1.0 and later do); {eagerly}"
)
_GRAPH_OF_THE_TEST = (
    "the test switches the dump on and off itself (config_path, torchair_config()), so whether it was on "
    f"while the graph was captured is not known; {_EAGERLY}, or leave the dump to the marker"
)
IMPORTED_UNDER_DUMP = (
    "torch_npu was imported while the dump was on, so graphs that were captured or replayed since were not "
    "seen, of which CANN may dump nothing and report no error: import torch_npu at the top of the test's file"
)
GRAPH_BEFORE = (
    "it was captured before this dump was on (at import, in a wider fixture, by an earlier test or run, or "
    "outside of this capture()), so nothing of it is dumped; capture it inside the test, with "
    'isolation="process" where torch.compile keeps it'
)
GRAPH_TWICE = (
    "it holds the dump of its tensors, and in CANN a second replay reads memory that the first has freed; "
    f"replay it once in the test, or {_EAGERLY}"
)
GRAPH_NOT_REPLAYED = (
    "it holds the dump of its tensors and was never replayed while that was on, so nothing of it is dumped, "
    "and CANN waits up to 60 seconds for it when the dump ends; replay it once in the test, or do not "
    "capture it"
)


@dataclass(frozen=True, slots=True)
class GraphRules:
    """What a dump makes of captured graphs.

    Attributes:
        refused: why a test must not capture or replay one under it; "" where it may.
        tensors: whether a graph that is captured under it holds the dump, so that it is replayed only once.
    """

    refused: str
    tensors: bool

    @classmethod
    def of(cls, config: Path, version: str, *, released: bool = False) -> GraphRules | None:
        """Return the rules under an acl.json; None for a dump of exceptions, which a graph raises as well.

        Args:
            config: the acl.json.
            version: the release of CANN.
            released: whether the test switches the dump on and off itself.
        """
        dump = json.loads(config.read_text(encoding="utf-8")).get("dump", {})
        scene = dump.get("dump_scene", "")
        if scene and scene != "watcher":
            return None
        old = _GRAPH_IN_OLD_CANN.format(version=version, eagerly=_EAGERLY)
        reasons = (
            (dump.get("dump_debug") == "on", _GRAPH_OVERFLOW),
            (scene == "watcher", _GRAPH_UNKNOWN),
            (dump.get("dump_data", "tensor") != "tensor", _GRAPH_STATS),
            (profile_for(version) in _UNSEEN_BY_DUMP, old),
            (released, _GRAPH_OF_THE_TEST),
        )
        refused = next((why for applies, why in reasons if applies), "")
        return cls(refused, tensors=refused not in {_GRAPH_OVERFLOW, _GRAPH_STATS})
