"""The mapping file: layers of the device whose names the reference does not know.

YAML, ``layer name or glob: ONNX node name or tensor name``, in any number::

    Conv_0Relu_1: Relu_1
    "fused_attention_*": /attention/MatMul_output_0
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

from pytest_npudump.dump.selection import both_spellings
from pytest_npudump.errors import RequestError
from pytest_npudump.request import matches_any
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

    def names(self, layer: str) -> bool:
        """Whether the entry is about ``layer``, raw or as file names spell it."""
        return matches_any(both_spellings([self.layer]), *both_spellings([layer]))


@dataclass(frozen=True, slots=True)
class NameMap:
    """A mapping file.

    Attributes:
        path: the file; None for no file.
        entries: in the order of the file; the first one that names a layer counts.
    """

    path: Path | None = None
    entries: tuple[MapEntry, ...] = ()

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

    def entry(self, layer: str) -> MapEntry | None:
        """Return the first entry about ``layer``: an exact name before any glob; None without one."""
        spelt = both_spellings([layer])
        exact = (e for e in self.entries if e.layer in spelt or both_spellings([e.layer])[-1] in spelt)
        return next(exact, None) or next((e for e in self.entries if e.names(layer)), None)

    def unused(self, layers: Iterable[str]) -> tuple[str, ...]:
        """Say which entries decide about none of ``layers``, and why."""
        deciding = {layer: self.entry(layer) for layer in dict.fromkeys(layers)}
        used = {entry.line for entry in deciding.values() if entry is not None}
        return tuple(
            f"{self.path}, line {entry.line}: {_why_unused(entry, deciding)}; correct or remove the entry"
            for entry in self.entries
            if entry.line not in used
        )


def _why_unused(entry: MapEntry, deciding: Mapping[str, MapEntry | None]) -> str:
    others = (other for layer, other in deciding.items() if other is not None and entry.names(layer))
    lines = sorted({other.line for other in others})
    if not lines:
        return f"no layer of the dump is called {entry.layer!r}"
    return (
        f"every layer that {entry.layer!r} names is mapped by line {', '.join(map(str, lines))}, as an exact "
        f"name counts before a glob and an earlier entry before a later one"
    )


def _hint(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name, known, n=3)
    return f"did you mean {', '.join(map(repr, close))}?" if close else "look the names up with Netron"
