"""Block of a golden file with digests of the models that ran, and the comparison of two.

A line of a file has its name behind ``#``, the digest of all its bytes, and one of which operator feeds
which, ``-`` where nothing of the file is known but its bytes. A line of an operator has digests of its
attributes and of its weights, and of the weights without the order along their first and second axis, so that
channels in another order are told from other weights. A type stands behind ``=`` where the operator's name
does not imply it (:func:`implied_type`). An operator of which there is nothing to say has no line::

    #classifier.onnx 1xJ0cYb2l8sQfA9z 7QmT3rk0Zx4B=
    Conv@21 Ab3d Qz81kP x7Yt kL0m
    BatchNormalization@22 - 4fWq0e p-Zr
    MaxPool@4 9s_Q
    activation =Relu

Of an ONNX file a second digest stands behind that of the graph without a space: of the same with all that
operators compute with, which tells where they or outputs change places. The line of a file ends with ``=`` if
types are known. Goldens of earlier versions have neither.

Of an ONNX file a second digest stands behind the first one without a space where some attributes change
nothing, as strides of 1: it is of the others, ``----`` for none. Of an om, whose attributes are told in part,
it is of types, shapes and layouts of the weights: those that the compiler has put otherwise are not compared.
In a golden file the digests of an operator stand behind its edges, if the operators of both blocks have one
order. Of torch modules and cells of MindSpore the file is ``#NAME.parameters``. ``#NAME.fed`` has a digest of
all that the model was given, in any order of its executions. Where several models ran, an operator's name is
followed by ``#model=``, as in keys of tensors. Where a golden's layers were accepted from runs of several
models, the digest of a file is :data:`SEVERAL`.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pytest_npudump.record.edges import DIGESTS
from pytest_npudump.record.rows import RowError, by_name

if TYPE_CHECKING:
    from pytest_npudump.dump.records import TensorKey

FILE = "#"
"""Begins the line of a file; in the name of an operator it is percent-encoded."""
NONE = "-"
UNSAID = "----"
"""Second digest of an operator of whose attributes none changes anything."""
PARAMETERS = ".parameters"
"""Ends the name of a file in the line of a model that is in none: all that is known is its parameters."""
FED = ".fed"
"""Ends the name in the line of what a model was given."""
SEVERAL = 16 * "-"
"""Digest of a file where a golden's layers are of several."""
ALL, WEIGHTS, NOTHING = "all", "weights", "nothing"
TYPED = "="
"""Precedes the type of an operator, and ends the line of a file whose operators' types are known."""
_FILE_LINE = re.compile(r"#\S+ [\w-]{16} (?:-|(?:[\w-]{6}){1,2}=?)")
OPERATOR_DIGESTS = r"(?= )(?: =[^\s#]+)?(?: (?:-|(?:[\w-]{4}){1,2})(?: [\w-]{6}(?: [\w-]{4}){0,2})?)?"
_OPERATOR_LINE = re.compile(rf"[^\s#]+(?:#model=[^\s#]+)?{OPERATOR_DIGESTS}")
_CAPITALISED = re.compile(r"(?<![A-Za-z0-9])[A-Z][A-Za-z0-9]*")
_ATTRIBUTES, _FORM = slice(4), slice(4, None)
"""Places of digests in the first word of an operator."""
_GRAPH, _WHOLE = slice(6), slice(6, None)
"""Places of digests in the last word of a file's line."""
_EXACT, _BY_AXIS = slice(1, 2), slice(2, None)
"""Places of an operator's digests among its words."""


def check_model_lines(block: str, joint: Iterable[str] = ()) -> None:
    """Refuse lines that are no digests of a model, and two of one name.

    Args:
        block: the lines.
        joint: names of operators whose digests stand with their edges.

    Raises:
        RowError: names the line.
    """
    seen = {*joint}
    for row, line in enumerate(block.splitlines()):
        name = line.partition(" ")[0]
        if not (_FILE_LINE if name.startswith(FILE) else _OPERATOR_LINE).fullmatch(line):
            raise RowError(row, f"{line[:120]!r} is no digest, expected such as: conv1 Ab3d Qz81kP x7Yt kL0m")
        if name in seen:
            raise RowError(row, f"{name!r} stands here a second time, remove one of the lines")
        seen.add(name)


@dataclass(frozen=True, slots=True)
class ModelChange:
    """Change of a run's models against those of its golden.

    Attributes:
        files: names of the run's files that are not the golden's byte for byte.
        weights: operators whose weights are others.
        permuted: those of them whose weights are in another order along an axis, each with the axis.
        attributes: operators whose attributes are others.
        types: operators of another type, each with the golden's and its own.
        operators: operators that are new or gone.
        removed: those of them that are gone.
        rewired: operators that other ones feed, each with the removed or added operator of these, or itself.
        graph: whether operators feed others, or are of other versions or types, and none of these is named.
        weighted: number of operators with weights in the run.
        read: what the files tell besides their bytes: :data:`ALL`; :data:`WEIGHTS`, with the graph and some
            attributes, of oms; :data:`PARAMETERS` of a model in no file; or :data:`NOTHING`.
        fed: names of models that were given something else.
        mixed: whether layers of the golden are of several models.
        fed_alike: whether all models are known to have been given what the golden's were, byte for byte.
    """

    files: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    permuted: Mapping[str, int] = field(default_factory=dict)
    attributes: tuple[str, ...] = ()
    types: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    operators: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    rewired: Mapping[str, str] = field(default_factory=dict)
    graph: bool = False
    weighted: int = 0
    read: str = NOTHING
    fed: tuple[str, ...] = ()
    mixed: bool = False
    fed_alike: bool = False

    @property
    def reconnected(self) -> bool:
        """Return whether operators may be fed by others than in the golden."""
        return self.graph or bool(self.rewired)

    def names(self, key: TensorKey) -> bool:
        """Return whether the weights, attributes, type or connections of a tensor's operator are others."""
        changed = {*self.weights, *self.attributes, *self.types, *self.rewired}
        return not changed.isdisjoint(key.operator_names)

    def without(self, names: Collection[str]) -> ModelChange:
        """Return the change but for that of some operators' weights, attributes and types, uncounted."""
        return replace(
            self,
            weights=tuple(name for name in self.weights if name not in names),
            permuted={name: axis for name, axis in self.permuted.items() if name not in names},
            attributes=tuple(name for name in self.attributes if name not in names),
            types={name: pair for name, pair in self.types.items() if name not in names},
            weighted=0,
        )

    @property
    def altered(self) -> Mapping[str, str]:
        """Return each operator that changed, or that such a one feeds, with the one that changed."""
        added = (name for name in self.operators if name not in self.removed)
        own = (*self.weights, *self.attributes, *self.types, *added)
        return {**{name: name for name in own}, **self.rewired}

    @property
    def changed(self) -> bool:
        """Return whether the models are known to compute something else: other files alone may not."""
        told = (self.weights, self.attributes, self.types, self.operators, self.rewired, self.graph)
        return any(told) or (bool(self.files) and self.read == NOTHING)

    @property
    def _same_file(self) -> bool | None:
        """Return whether the files are the golden's; None where that has no single one, or none is known."""
        return None if self.mixed or (not self.files and self.read == NOTHING) else not self.files

    def summary(self) -> dict[str, Any]:
        """Return the numbers of what differs, and the first operator or file that does."""
        names = ("weights", "permuted", "attributes", "types", "operators")
        counts = {name: len(getattr(self, name)) for name in names}
        named = (*self.weights, *self.attributes, *self.types, *self.operators, *self.rewired, *self.files)
        first = next(iter(named), None)
        told = {"same_file": self._same_file, "changed": self.changed, "first": first}
        return {**told, "graph": self.graph, **counts, "fed": len(self.fed)}

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON data."""
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        return {"same_file": self._same_file, "changed": self.changed, **told}


@lru_cache(maxsize=1)
def change_of_models(golden: str, run: str) -> ModelChange | None:
    """Compare a run's models and their inputs with the golden's; None where those of a side are not known.

    An operator by another name is the same one if its digests, and its place among such, are.

    Args:
        golden: the golden's block.
        run: the run's.
    """
    given = [parted(block)[1] for block in (golden, run)]
    fed = fed_otherwise_in(*given)
    found = _change_of_files(*(parted(block)[0] for block in (golden, run)))
    if found is None:
        return ModelChange(fed=fed) if fed else None
    return replace(found, fed=fed, fed_alike=bool(given[0]) and given[0] == given[1])


def is_typed(block: str) -> bool:
    """Return whether a block knows the types of its models' operators."""
    files = [line for line in parted(block)[0].splitlines() if line[0] == FILE]
    return bool(files) and all(line.endswith(TYPED) for line in files)


def implied_type(name: str) -> str:
    """Return the type that an operator's name implies: its last word with a capital; "" without any."""
    words: list[str] = _CAPITALISED.findall(name.partition(FILE)[0])
    return words[-1] if words else ""


def types_between(golden: str, run: str, *, certain: bool = False) -> dict[str, tuple[str, str]]:
    """Return the operators of other types, each with the golden's and the run's; none where some are unknown.

    Names that are numbers stand for others once an operator is added: they are not told.

    Args:
        golden: the golden's block.
        run: the run's.
        certain: whether to leave out operators of which a block has no line: that side's model may lack them.
    """
    sides = [by_name(block) for block in (golden, run)]
    if not (is_typed(golden) and is_typed(run)):
        return {}
    found = {}
    for name in (name for name in {**sides[1], **sides[0]} if name[0] != FILE):
        was, now = (_kind(name, side.get(name, f"{name} ")) for side in sides)
        if was and now and was != now and not (certain and any(name not in side for side in sides)):
            found[name] = was, now
    before, after = (Counter(pair[at] for pair in found.values()) for at in (0, 1))
    return found if (before - after).total() == len(found) else {}


def model_lines_under(names: Mapping[str, str], block: str) -> str:
    """Return lines with other names of operators, by the names in them: what old names imply is told.

    The type of an operator without a line is unknown then. For :func:`change_of_models` only.
    """
    lines = []
    for name, line in {**{name: f"{name} {TYPED}" for name in names}, **by_name(block)}.items():
        own, sign, model = name.partition(FILE)
        words = line.split(" ")[1:]
        if own in names and words[0][0] != TYPED:
            words.insert(0, f"{TYPED}{implied_type(own)}")
        lines.append(" ".join((f"{names.get(own, own)}{sign}{model}", *words)))
    return "".join(f"{line}\n" for line in lines)


def fed_otherwise_in(before: str, after: str) -> tuple[str, ...]:
    """Return the models that were given other values, of the lines of what both sides' were given."""
    given = [by_name(before), by_name(after)]
    told = [name for name in given[0] if name in given[1]]
    return tuple(name[len(FILE) : -len(FED)] for name in told if given[0][name] != given[1][name])


def parted(block: str) -> tuple[str, str]:
    """Return the lines of models, and those of what they were given."""
    lines = block.splitlines(keepends=True)
    fed = [line for line in lines if line[0] == FILE and line.partition(" ")[0].endswith(FED)]
    return "".join(line for line in lines if line not in fed), "".join(fed)


def with_digests(
    edges: Mapping[str, str], models: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Put operators' digests behind their edges, if all of these operators have one order in both.

    Args:
        edges: lines by the operator's name.
        models: lines by their names.

    Returns:
        The lines of both blocks of a golden file.
    """
    names = [name for name in edges if name in models]
    own = [name for name in models if name[0] != FILE]
    if own[len(own) - len(names) :] != names:
        return {**edges}, {**models}
    told = {name: f"{edges[name]}{DIGESTS}{models[name].partition(' ')[2]}" for name in names}
    return {**edges, **told}, {name: line for name, line in models.items() if name not in told}


def without_digests(edges: str, models: str) -> tuple[str, str]:
    """Return the lines of edges alone, and of models with all operators, of a golden file's two blocks."""
    if DIGESTS not in edges:
        return edges, models
    lines = [(name, line.partition(DIGESTS)) for name, line in by_name(edges).items()]
    others, fed = parted(models)
    told = "".join(f"{name} {digests}\n" for name, (_, sign, digests) in lines if sign)
    return "".join(f"{line}\n" for _, (line, *_) in lines), f"{others}{told}{fed}"


def fed_line(name: str, digests: Iterable[bytes]) -> str:
    """Return the line of what a model was given, by a digest of each of its executions in their order."""
    digest = sha256(b"".join(digests)).digest()
    return f"{FILE}{name}{FED} {urlsafe_b64encode(digest).decode()[:16]} {NONE}\n"


def _change_of_files(golden: str, run: str) -> ModelChange | None:
    sides = [by_name(block) for block in (golden, run)]
    split = [{name: _digests(line) for name, line in side.items()} for side in sides]
    files = [{name[1:]: words for name, words in side.items() if name[0] == FILE} for side in split]
    formats = {name.rpartition(".")[2] for side in files for name in side}
    if not all(files) or len(formats) > 1:
        return None
    moved = [digest for name, (digest, _) in files[0].items() if name not in files[1]]
    others = tuple(
        name
        for name, (digest, _) in files[1].items()
        if (digest != files[0][name][0] if name in files[0] else digest not in moved)
    )
    if len(files[0]) != len(files[1]):
        shared = [name for name in files[1] if name in files[0]]
        strangers = tuple(name for name in (others if shared else files[1]) if name not in shared)
        told = _change_of_files(*_of_models(shared, sides)) if shared else None
        told = told or ModelChange()
        unknown = told.files if told.read == NOTHING else ()
        return replace(told, files=strangers + unknown, read=NOTHING) if strangers or unknown else told
    read = PARAMETERS if formats == {PARAMETERS[1:]} else ALL
    if not others:
        return ModelChange(read=read)
    old, new = ({name: words for name, words in side.items() if words and name[0] != FILE} for side in split)
    if "om" not in formats:
        old, new = _without_neutral(old), _without_neutral(new)
    graphs = [sorted(graph[_GRAPH].rstrip(TYPED) for _, graph in side.values()) for side in files]
    wholes = [sorted(graph[_WHOLE].rstrip(TYPED) for _, graph in side.values()) for side in files]
    types = types_between(golden, run, certain=True) if graphs[0] != graphs[1] else {}
    common = dict.fromkeys(name for name in new if name in old)
    changed = [name for name in common if old[name] != new[name]]
    # Where the graph is another one, operators without names of their own go by others' names.
    shifted = {*changed} if graphs[0] != graphs[1] else set[str]()
    left = [[name for name in side if name not in common or name in shifted] for side in (old, new)]
    gone, added = (
        [tuple(side[name]) for name in names] for side, names in zip((old, new), left, strict=True)
    )
    unlike = (Counter(gone) - Counter(added)) | (Counter(added) - Counter(gone))
    swapped = not unlike and gone != added
    if swapped:  # of operators in another order, weights may have changed places
        unlike = Counter(gone)
    strange = [
        {name for name in left[at] if tuple(side[name]) in unlike} for at, side in enumerate((old, new))
    ]
    changed = [name for name in changed if name not in shifted or all(name in names for names in strange)]
    named = {*changed}
    operators = [[name for name in left[at] if name in strange[at] and name not in named] for at in (0, 1)]
    pairs = {name: (old[name], new[name]) for name in changed}
    given: list[str] = []
    both = old, new
    plain = [[name for name in operators[at] if not both[at][name][_EXACT]] for at in (0, 1)]
    renamed = [[name for name in operators[at] if name not in plain[at]] for at in (0, 1)]
    if graphs[0] == graphs[1] and read != PARAMETERS and not swapped and len(renamed[0]) == len(renamed[1]):
        # Of the same operators: some have other names, or attributes for the first time.
        pairs |= {now: (old[was], new[now]) for was, now in zip(*renamed, strict=True)}
        given, operators = [*plain[0], *plain[1]], [[], []]
    weights = [
        name
        for name, (was, now) in pairs.items()
        if was[_EXACT] != now[_EXACT] and was[0][_FORM] == now[0][_FORM]
    ]
    attributes = [name for name, (was, now) in pairs.items() if was[0][_ATTRIBUTES] != now[0][_ATTRIBUTES]]
    known = tuple(name for name in others if files[0].get(name, ("",))[0] != SEVERAL)
    weighted = sum(bool(words[_EXACT]) for words in new.values())
    attributes = [name for name in (*attributes, *given) if name not in types]
    operators = [[name for name in names if name not in types] for names in operators]
    found = ModelChange(known, weighted=weighted, mixed=known != others)
    if NONE in (*graphs[0], *graphs[1]):
        return found
    read = WEIGHTS if formats == {"om"} else read
    # What operators compute with may be as before, and what feeds them not.
    exchanged = wholes[0] != wholes[1] and all((*wholes[0], *wholes[1])) and not (weights or attributes)
    graph = (graphs[0] != graphs[1] or exchanged) and not any((*operators, types))
    found = replace(found, read=read, graph=graph)
    permuted = {
        name: axis
        for name in reversed(weights)
        for axis, pair in reversed([*enumerate(zip(*(side[_BY_AXIS] for side in pairs[name]), strict=False))])
        if pair[0] == pair[1]
    }
    return replace(
        found,
        weights=tuple(weights),
        permuted={name: permuted[name] for name in weights if name in permuted},
        attributes=tuple(attributes),
        types=types,
        operators=tuple(dict.fromkeys(operators[0] + operators[1])),
        removed=tuple(operators[0]),
    )


def _of_models(shared: Sequence[str], sides: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the lines of both sides for some models, with operators called as on the second side."""
    stems = {name.rpartition(".")[0] for name in shared}
    several = sum(name[0] == FILE for name in sides[1]) > 1
    found = []
    for side in sides:
        alone = sum(name[0] == FILE for name in side) == 1
        lines = [side[FILE + name] for name in shared]
        for name, line in side.items():
            own, _, model = name.partition(f"{FILE}model=")
            model = next(iter(stems)) if alone else model
            if own and own[0] != FILE and model in stems:
                lines.append((f"{own}{FILE}model={model}" if several else own) + line[len(name) :])
        found.append("".join(f"{line}\n" for line in lines))
    return found


def _digests(line: str) -> list[str]:
    return [word for word in line.split(" ")[1:] if word[0] != TYPED]


def _without_neutral(operators: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return operators by their digests without attributes that change nothing."""
    found = {}
    for name, (first, *others) in operators.items():
        form = first[_FORM]
        words = [NONE if form == UNSAID else form or first, *others]
        if words != [NONE]:
            found[name] = words
    return found


def _kind(name: str, line: str) -> str:
    """Return the type of a line's operator; "" where nothing tells it."""
    word = line.split(" ")[1]
    return word[1:] if word[:1] == TYPED else implied_type(name)


def operators_in(block: str) -> set[str]:
    """Return the names of the operators in a block."""
    return {name.partition(FILE)[0] for name in by_name(parted(block)[0]) if name[0] != FILE}


def model_files_of(block: str) -> tuple[str, ...]:
    """Return the names of the files in a block."""
    return tuple(name[1:] for name in by_name(parted(block)[0]) if name[0] == FILE)


def model_lines_of(before: str, run: str, layers: Collection[str]) -> str:
    """Return the block of a golden of which only some layers become those of a run.

    What only one side's model is, or was given, is true of the golden no more.

    Args:
        before: the golden's block.
        run: the run's.
        layers: names of those layers, as keys of tensors spell them.
    """
    sides = [by_name(block) for block in (before, run)]
    if not all(sides):
        return before
    chosen = [{name for name in side if name.partition(FILE)[0] in layers} for side in sides]
    kept = {name: line for name, line in sides[0].items() if name not in chosen[0] - chosen[1]}
    for name in [name for name in kept if name[0] == FILE and kept[name] not in sides[1].values()]:
        if name.endswith(FED):
            del kept[name]
        else:
            graph, own = (side.get(name, "").rpartition(" ")[2] for side in (kept, sides[1]))
            typed = TYPED * (graph[-1:] == TYPED == own[-1:])
            kept[name] = " ".join((name, SEVERAL, graph[_GRAPH].rstrip(TYPED) + typed))
    return "".join(
        f"{line}\n" for line in ({**kept, **{n: sides[1][n] for n in sides[1] if n in chosen[1]}}).values()
    )
