"""The mapping file: layers of the device whose names the reference does not know.

YAML, ``layer name or glob: ONNX node name or tensor name``, in any number::

    Conv_0Relu_1: Relu_1
    "fused_attention_*": /attention/MatMul_output_0
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pytest_npudump.dump.records import sanitise
from pytest_npudump.errors import RequestError
from pytest_npudump.request import KnownNames
from pytest_npudump.storage import safeyaml

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class MapEntry:
    """One line of the file.

    Attributes:
        layer: name or glob of layers of the dump.
        target: name of a node or tensor of the reference.
        line: where it stands.
    """

    layer: str
    target: str
    line: int


@dataclass(frozen=True, slots=True)
class NameMap:
    """A mapping file.

    Attributes:
        path: the file; None for no file.
        entries: in the order of the file; the first one that names a layer counts.
        layers: of the dumps that :meth:`for_layers` was given.
        deciding: the one that counts, by layer.
    """

    path: Path | None = None
    entries: tuple[MapEntry, ...] = ()
    layers: frozenset[str] = frozenset()
    deciding: Mapping[str, MapEntry] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, known: Collection[str]) -> NameMap:
        """Read a mapping file.

        Args:
            path: the file.
            known: names of the reference's nodes and tensors.

        Raises:
            RequestError: it cannot be read, is no such mapping, or names what the reference does not have.
        """
        try:
            document = safeyaml.read_mapping(path)
        except safeyaml.YamlError as error:
            raise RequestError(f"{path}, line {error.line}: {error.reason}") from error
        except OSError as error:
            raise RequestError(f"reference_map: {path} cannot be read: {error}") from error
        entries = []
        for layer, target in document.data.items():
            line = document.lines[layer]
            if not isinstance(target, str) or not target or not layer:
                raise RequestError(
                    f"{path}, line {line}: {layer!r} is mapped to {target!r}, expected a layer's name or "
                    f"glob and the name of a node or tensor of the ONNX model (in quotes, if it is a number)"
                )
            if target not in known:
                raise RequestError(
                    f"{path}, line {line}: the reference has no node or tensor {target!r}; "
                    f"{_hint(target, known)}"
                )
            entries.append(MapEntry(layer, target, line))
        return cls(path, tuple(entries))

    def for_layers(self, layers: Iterable[str]) -> NameMap:
        """Return the same for these layers, too: an exact name before any glob, and then the first one."""
        layers = self.layers.union(layers)
        names = KnownNames(layers, sanitise)
        deciding: dict[str, MapEntry] = {}
        for entry in sorted(self.entries, key=lambda one: not names.called(one.layer)):
            for layer in names.meant([entry.layer]):
                deciding.setdefault(layer, entry)
        return replace(self, layers=layers, deciding=deciding)

    def unused(self, layers: Iterable[str]) -> tuple[str, ...]:
        """Say which entries decide about none of ``layers``, and why."""
        there = set(layers)
        names, deciding = KnownNames(there, sanitise), self.for_layers(there).deciding
        used = {deciding[layer].line for layer in there & deciding.keys()}
        return tuple(
            f"{self.path}, line {entry.line}: {_why_unused(entry, others)}; correct or remove the entry"
            for entry in self.entries
            if entry.line not in used
            for others in [{deciding[layer].line for layer in names.meant([entry.layer])}]
        )


def _why_unused(entry: MapEntry, lines: Collection[int]) -> str:
    if not lines:
        return f"no layer of the dump is called {entry.layer!r}"
    return (
        f"every layer that {entry.layer!r} names is mapped by line {', '.join(map(str, sorted(lines)))}, as "
        f"an exact name counts before a glob and an earlier entry before a later one"
    )


def _hint(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name, known, n=3)
    return f"did you mean {', '.join(map(repr, close))}?" if close else "look the names up with Netron"
