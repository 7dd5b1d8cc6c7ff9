"""Comparison of a dump with the reference, which is fed what the test's models were, in execution order."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from pytest_npudump.compare.judge import AS_GIVEN, REFERENCE, Terms, judge
from pytest_npudump.compare.patterns.pattern_search import SEARCHED, Limits, Pattern, find_pattern, leave_out
from pytest_npudump.compare.stats.verdict import GRAPH_INPUT, Comparison
from pytest_npudump.compare.tensors.difference import compare_tensors
from pytest_npudump.compare.tensors.tensor_pair import PairElements
from pytest_npudump.dump.arrays.decode import load, why_opaque
from pytest_npudump.dump.arrays.layouts import LayoutError, host_array, is_private
from pytest_npudump.dump.dtypes import BY_NAME, UNKNOWN
from pytest_npudump.dump.files.operator_csv import GARBLED
from pytest_npudump.dump.names import Place, context, read_place
from pytest_npudump.dump.records import Stats, TensorKey, TensorRecord, sanitise
from pytest_npudump.dump.stats.tensor import tensor_stats
from pytest_npudump.dump.table import MEASURED, StatsTable, squeezed
from pytest_npudump.errors import RequestError
from pytest_npudump.explain.matches import NAME, Match, Matching, NameMap, match
from pytest_npudump.explain.reference_model import Node, ReferenceModel, operators_behind
from pytest_npudump.language.text import first_of, number_of
from pytest_npudump.record.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import ArrayLike
    from typing_extensions import Self

    from pytest_npudump.compare.tolerances.tolerance import Tolerances
    from pytest_npudump.runtime.base import ModelSession

    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(slots=True)
class LoadedModel:
    """One model that was loaded, and what each of its executions was given.

    Attributes:
        part: the capture it was loaded in; "" outside of any.
        path: its file.
        names: its inputs' names, in order; empty where the runtime does not tell them.
        runs: copies of the arrays, in the order of the inputs, one item an execution.
    """

    part: str
    path: Path
    names: tuple[str, ...]
    runs: list[tuple[Array, ...]] = field(default_factory=list)


@dataclass(slots=True)
class RunInputs:
    """Inputs of all models in one run of a test.

    Attributes:
        loaded: models loaded through ``npu_dump.load_model``, in the order of loading.
        given: what ``npu_dump.reference_inputs`` was given, by the capture it was called in.
        advice: how to give inputs that are not known.
    """

    loaded: list[LoadedModel] = field(default_factory=list)
    given: dict[str, list[dict[str, Array]]] = field(default_factory=dict)
    advice: str = (
        "load the model with npu_dump.load_model(), call npu_dump.reference_inputs({name: array, ...}) once "
        'for each execution, or dump the inputs themselves with acl_json={"dump_data": "tensor"}'
    )

    def watch(self, session: ModelSession, path: Path, part: str) -> ModelSession:
        """Return ``session`` such that what it is run on is remembered."""
        names = tuple(getattr(session, "input_names", ()))
        self.loaded.append(LoadedModel(part, path, names))
        return _WatchedSession(session, self.loaded[-1])

    def give(self, inputs: Mapping[str, ArrayLike], part: str) -> None:
        """Keep the inputs of an execution under way, or of the next one.

        Raises:
            RequestError: ``inputs`` is no mapping of names to arrays of numbers.
        """
        arrays = {name: np.array(value, copy=True) for name, value in dict(inputs).items()}
        if not arrays or any(not isinstance(name, str) for name in arrays):
            raise RequestError(
                "reference_inputs: expected a mapping of the reference's input names to arrays"
            )
        for name, array in arrays.items():
            if array.dtype.kind in "OSUMm":
                raise RequestError(
                    f"reference_inputs: {name!r} is of the type {array.dtype}, expected numbers"
                )
        self.given.setdefault(part, []).append(arrays)


@dataclass(slots=True)
class _WatchedSession:
    """A session that copies what it is run on."""

    _session: ModelSession
    _model: LoadedModel

    def run(self, *arrays: np.ndarray) -> list[np.ndarray]:
        __tracebackhide__ = True
        # Copies, made before the run: buffers are reused, also by the run itself.
        copies = tuple(np.array(array, copy=True) for array in arrays)
        before = self._session.executions
        try:
            return self._session.run(*arrays)
        finally:
            # The device counts an execution that failed, too, and none that never reached it.
            if self._session.executions > before:
                self._model.runs.append(copies)

    def __enter__(self) -> Self:
        self._session.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.__exit__(kind, error, trace)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


@dataclass(frozen=True, slots=True)
class Feeds:
    """The inputs of the executions of one run of a test.

    Attributes:
        inputs: what was remembered while it ran.
        names: the reference's inputs, in order.
        executions: those that are compared with it, and one record of each, in execution order.
        records: the dump, where it may hold the inputs themselves.
    """

    inputs: RunInputs
    names: tuple[str, ...]
    executions: Mapping[TensorKey, TensorRecord]
    records: Sequence[TensorRecord]

    def of(self, execution: TensorKey) -> dict[str, Array]:
        """Return the arrays of one execution by the reference's names.

        Raises:
            RequestError: they are not known for certain; the message says what to do.
            DumpError: the dump holds them and cannot be read.
        """
        if execution.capture in self.inputs.given:
            return self._given(execution)
        try:
            return self._run_on(execution)
        except RequestError as error:
            dumped = self._dumped(execution)
            if dumped is None:
                raise RequestError(f"{error}; {self.inputs.advice}") from None
            return dumped

    def _given(self, execution: TensorKey) -> dict[str, Array]:
        given = self.inputs.given[execution.capture]
        executions = [e for e in self.executions if e.capture == execution.capture]
        if len(given) != len(executions):
            raise RequestError(
                f"npu_dump.reference_inputs() was called {number_of(len(given), 'time')}, the dump has "
                f"{number_of(len(executions), 'execution')} of the model: call it once for each, "
                f"in their order"
            )
        found = given[executions.index(execution)]
        if unknown := [name for name in found if name not in self.names]:
            raise RequestError(
                f"npu_dump.reference_inputs(): {unknown[0]!r} is no input of the reference, which has "
                f"{', '.join(map(repr, self.names))}"
            )
        return found

    def _run_on(self, execution: TensorKey) -> dict[str, Array]:
        model = self._model_of(execution)
        step = _place_of(self.executions[execution]).iteration
        if step < 0 and len(model.runs) == 1:
            step = 0
        if not 0 <= step < len(model.runs):
            raise RequestError(
                f"the inputs of execution {step} of {model.path.name} are not known: its session ran "
                f"{number_of(len(model.runs), 'time')}"
            )
        arrays = model.runs[step]
        names = model.names if set(model.names) == set(self.names) else self.names
        if len(arrays) != len(names):
            raise RequestError(
                f"the model was run on {number_of(len(arrays), 'array')}, the reference takes {len(names)}: "
                f"{', '.join(names)}"
            )
        return dict(zip(names, arrays, strict=True))

    def _model_of(self, execution: TensorKey) -> LoadedModel:
        """Return the loaded model of ``execution``, where exactly one is possible."""
        ran = [m for m in self.inputs.loaded if m.part == execution.capture and m.runs]
        if not ran:
            raise RequestError("the inputs of the model are not known")
        name = _place_of(self.executions[execution]).model
        called = [model for model in ran if sanitise(model.path.stem) == sanitise(name)]
        ran = called or ran
        same = {  # the loaded models of that name in the dump, in the order of loading
            replace(other, step=0): _place_of(record).model_id
            for other, record in self.executions.items()
            if other.capture == execution.capture and _place_of(record).model == name
        }
        loads = sorted(same, key=lambda loaded: same[loaded])
        if len(ran) != len(loads):
            raise RequestError(
                f"the inputs of the model are not known: {len(ran)} loaded models ran, the dump tells "
                f"{len(loads)} of the name {name!r}"
            )
        return ran[loads.index(replace(execution, step=0))]

    def _dumped(self, execution: TensorKey) -> dict[str, Array] | None:
        """Return the outputs of the ``Data`` operators of one execution; None if one has no bytes."""
        held = {
            sanitise(record.key.layer): (record.payload, record.dtype, record.shape)
            for record in self.records
            if record.op_type == GRAPH_INPUT and record.payload and record.key.execution == execution
        }
        arrays = {name: load(*held[key]) for name in self.names if (key := sanitise(name)) in held}
        return arrays if len(arrays) == len(self.names) else None


def _place_of(record: TensorRecord) -> Place:
    """Parse the directories of a record's file."""
    return read_place(context(record.path.parent.parts))


def executions_of(records: Iterable[TensorRecord]) -> dict[TensorKey, TensorRecord]:
    """Return the executions of a dump in their order, each with its first record."""
    found: dict[TensorKey, TensorRecord] = {}
    for record in records:
        found.setdefault(record.key.execution, record)
    return found


_FLOAT32 = 4
_STATISTICS = ("max", "min", "avg", "l2norm", "nan", "neg_inf", "pos_inf")


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """A dump held against the reference.

    Attributes:
        matching: which tensors have counterparts; one that is a sequence or text counts as none.
        comparison: their verdicts.
        expected: the tensors side by side, in the dump's order.
        feeds: what the reference was given.
        notes: why elements were not compared.
    """

    matching: Matching
    comparison: Comparison
    expected: tuple[ExpectedTensor, ...]
    feeds: Feeds
    notes: tuple[str, ...] = ()


def compare(
    records: Sequence[TensorRecord],
    model: ReferenceModel,
    mapping: NameMap,
    inputs: RunInputs,
    tolerances: Tolerances,
    *,
    dumped: Sequence[TensorRecord] = (),
    limits: Limits | None = None,
) -> Compared:
    """Run the reference on what the device was fed, and compare all tensors that have a counterpart.

    Args:
        records: the dump, in execution order.
        model: the reference.
        mapping: names that the reference does not know.
        inputs: what the run fed its models.
        tolerances: what the device may differ by.
        dumped: further records that may hold the inputs.
        limits: where patterns are looked for in the first tensors that differ, counts what is left out.

    Raises:
        RequestError: nothing has a counterpart, or the inputs are not known.
        ModelError: onnxruntime cannot run the model on them.
        DumpError: a tensor of the dump cannot be read.
    """
    matching = match(records, model, mapping)
    if not matching.matches:
        raise RequestError(f"no layer of the dump has a counterpart in {_remedy(records, model)}")
    tolerances = tolerances.for_layers_of(str(record.key) for record in records)
    executions = executions_of(m.record for m in matching.matches)
    feeds = Feeds(inputs, model.inputs, executions, (*dumped, *records))
    found = dict(_expected(matching, model, feeds, tolerances, limits))
    kept = [m for m in matching.matches if m.record.key in found]
    gone = tuple(m.record for m in matching.matches if m.record.key not in found)
    expected = tuple(found[m.record.key].under_raw_name(m) for m in kept)
    comparison, notes = _judge(expected, tolerances)
    matching = replace(matching, matches=tuple(kept), alone=(*matching.alone, *gone))
    return Compared(matching, comparison, expected, feeds, notes)


def problem_of(
    compared: Compared, records: Sequence[TensorRecord], model: ReferenceModel, tolerances: Tolerances
) -> str:
    """Return why a comparison without mismatches is no match; "" if it is one.

    Args:
        compared: the comparison.
        records: the dump that was compared.
        model: the reference.
        tolerances: as for :func:`compare`.
    """
    given = given_tensors(model)
    computed = tuple(  # neither inputs of the graph nor moved ones
        expected
        for expected, found in zip(compared.expected, compared.matching.matches, strict=True)
        if not found.of_input and found.counterpart.tensor not in given
    )
    if not computed:
        return (
            f"nothing that an operator computes was compared: only the graph's inputs, as they are, reshaped "
            f"or cast, which are right in any model; no other tensor of the dump has a counterpart in "
            f"{_remedy(records, model)}"
        )
    comparison = compared.comparison
    if len(computed) < len(compared.expected):
        comparison, _ = _judge(computed, tolerances)
    valued = comparison.actual.known[:, :MEASURED].any()
    if comparison.failing or (comparison.unjudged < comparison.compared and valued):
        return ""
    return (
        f"no value was compared with {model.path.name}: the dump tells neither max, min, avg nor l2norm of "
        f"the {comparison.compared} tensors that operators compute (ACL has none of bfloat16); use "
        "acl_json={'dump_data': 'tensor'}"
    )


def _remedy(records: Sequence[TensorRecord], model: ReferenceModel) -> str:
    layers = list(dict.fromkeys(record.key.layer for record in records if record.op_type != GRAPH_INPUT))
    nodes = [node.name for node in model.nodes]
    both = f"the dump has {first_of(map(repr, layers), 3)}, the model {first_of(map(repr, nodes), 3)}"
    has = both if layers else "the dump has inputs only"
    return (
        f"{model.path.name}: {has}; give the ONNX model that was converted, or map the names in a YAML file "
        "with map="
    )


def _expected(
    matching: Matching, model: ReferenceModel, feeds: Feeds, tolerances: Tolerances, limits: Limits | None
) -> Iterator[tuple[object, ExpectedTensor]]:
    """Yield the tensors side by side by key; the reference runs once an execution, or in batches."""
    by_execution: defaultdict[TensorKey, list[Match]] = defaultdict(list)
    for found in matching.matches:
        by_execution[found.record.key.execution].append(found)
    differing = 0
    for execution, matches in by_execution.items():
        wanted: defaultdict[str, list[TensorRecord]] = defaultdict(list)
        for found in matches:
            wanted[found.counterpart.tensor].append(found.record)
        sizes = {tensor: max(map(_size, records)) for tensor, records in wanted.items()}
        for tensor, array in model.run(feeds.of(execution), sizes):
            if array is None:
                continue
            for record in wanted[tensor]:
                rtol, atol = tolerances.elements(record.key.layer, record.dtype, op_type=record.op_type)
                search = limits if differing < SEARCHED else None
                expected = expect(record, array, rtol=rtol, atol=atol, limits=search)
                differing += expected.differs
                yield record.key, expected
    if limits is not None:
        leave_out(limits, differing - SEARCHED)


def _size(record: TensorRecord) -> int:
    """Return about how many bytes the counterpart of a tensor takes."""
    bits = BY_NAME[record.dtype].bits if record.dtype in BY_NAME else 0
    if record.stats is not None and record.stats.count is not None:
        return record.stats.count * _FLOAT32
    return (record.size or 0) * 8 * _FLOAT32 // bits if bits else record.size or 0


def _judge(expected: Sequence[ExpectedTensor], tolerances: Tolerances) -> tuple[Comparison, tuple[str, ...]]:
    golden = StatsTable.from_records(_told([e.golden for e in expected], [e.actual for e in expected]))
    # Elements are compared wherever tensors were dumped, which say more than their projections.
    actual = StatsTable.from_records(e.actual for e in expected).with_projections({})
    elements = {row: e.elements for row, e in enumerate(expected) if e.elements is not None}
    terms = Terms(tolerances, option=AS_GIVEN, against=REFERENCE)
    comparison = judge(Record.of(golden), Record.of(actual), terms, elements=elements)
    notes = tuple(
        f"{expected[row].actual.key}: elements not compared: {found.note}"
        for row, found in elements.items()
        if found.note
    )
    return _in_own_words(comparison), notes


def _told(golden: Sequence[TensorRecord], actual: Sequence[TensorRecord]) -> Iterator[TensorRecord]:
    """Take from the reference what the dump tells of no tensor, and all of it where it tells nothing of one.

    The device's statistics leave out what was not asked for, types such as bfloat16, and, with a note of the
    reader, what CANN's host-side writer garbles. Anything else that one tensor lacks stays, and fails it.
    """
    told = {name for name in _STATISTICS if any(_tells(record.stats, name) for record in actual)}
    for here, there in zip(golden, actual, strict=True):
        stats, own = here.stats, there.stats
        if stats is None or own is None or not any(_tells(own, name) for name in _STATISTICS):
            yield replace(here, stats=None)
            continue
        lost = {name for name in _STATISTICS if GARBLED in there.note and not _tells(own, name)}
        unknown: dict[str, Any] = {name: None for name in _STATISTICS if name not in told or name in lost}
        yield replace(here, stats=replace(stats, **unknown))


def _tells(stats: Stats | None, name: str) -> bool:
    return stats is not None and getattr(stats, name) is not None


def _in_own_words(comparison: Comparison) -> Comparison:
    """Return a comparison whose reasons do not speak of a golden; its notes, which do, are made anew."""
    failing = tuple(
        replace(
            verdict,
            reasons=tuple(
                replace(reason, rule=reason.rule.replace("the golden", "the reference"))
                for reason in verdict.reasons
            ),
        )
        for verdict in comparison.failing
    )
    by_key = {verdict.key: verdict for verdict in failing}
    first = comparison.first
    return replace(comparison, failing=failing, first=by_key[first.key] if first else None, remarks=())


_MOVERS = frozenset(
    {"Cast", "Flatten", "Identity", "Reshape", "Shape", "Size", "Squeeze", "Transpose", "Unsqueeze"}
)
"""Types of operators whose output has the values of their first input, or its shape, and no weight's."""


def given_tensors(model: ReferenceModel) -> frozenset[str]:
    """Return the graph's inputs and what is only moved, reshaped or cast of them.

    They are right in any model that was fed the same arrays, another one included.
    """
    given = set(model.inputs)
    for node in model.nodes:
        if node.operator.op_type in _MOVERS and node.all_inputs and node.all_inputs[0] in given:
            given.update(node.operator.outputs)
    return frozenset(given)


def unseen_nodes(model: ReferenceModel, compared: Iterable[str]) -> tuple[Node, ...]:
    """Return the operators that matter to the model's outputs and to none of the tensors ``compared``.

    A difference in such an operator, its weights included, cannot show in the comparison.

    Args:
        model: the reference.
        compared: names of its tensors that were compared.
    """
    seen = {node.name for node in operators_behind(model.nodes, compared)}
    return tuple(node for node in operators_behind(model.nodes, model.outputs) if node.name not in seen)


OVERFLOW = "overflow"
PADDED = "padded"
LAYOUT = "layout"
"""Marks of a tensor in :attr:`Expected.marks`: the reference's values are beyond 16 bits; the statistics
count the padding of a layout; the layout cannot be converted."""

_LARGEST: dict[str, tuple[float, Any]] = {
    "float16": (float(np.finfo(np.float16).max), np.float16),
    "bfloat16": ((2 - 2.0**-7) * 2.0**127, ml_dtypes.bfloat16),
}
"""The greatest number of the types that hold fewer than float32."""
_FAMILIES = {"float": "float", "complex": "complex", "int": "int", "bool": "int"}
_LAYOUTS = {4: "NCHW", 5: "NCDHW"}
_AXES = {"NHWC": (0, 2, 3, 1), "NDHWC": (0, 2, 3, 4, 1), "HWCN": (2, 3, 1, 0)}
"""Host layouts by the axes of ONNX's NCHW and NCDHW that they consist of."""


@dataclass(frozen=True, slots=True)
class ExpectedTensor:
    """A tensor of the device beside its counterpart.

    Attributes:
        golden: the reference as a record under the device's key, in the device's type and shape where only
            these differ.
        actual: the device's tensor, with statistics that can be held against it.
        elements: what the comparison element by element found; None where the dump has statistics only.
        marks: any of :data:`OVERFLOW`, :data:`PADDED`, :data:`LAYOUT`.
        pattern: what explains the difference of the elements; None where nothing does, or was looked for.
    """

    golden: TensorRecord
    actual: TensorRecord
    elements: PairElements | None = None
    marks: frozenset[str] = frozenset()
    pattern: Pattern | None = None

    @property
    def differs(self) -> bool:
        """Return whether an element is farther off than a single one may be."""
        difference = self.elements.difference if self.elements is not None else None
        return difference is not None and difference.outside > 0

    def under_raw_name(self, found: Match) -> ExpectedTensor:
        """Give the reference's side the raw name, where the dump has only the one of its file names."""
        node = found.counterpart.node
        name = node.name if node is not None else found.counterpart.tensor
        if found.counterpart.how != NAME or sanitise(name) != found.record.key.layer:
            return self
        return replace(self, golden=replace(self.golden, key=replace(found.record.key, layer=name)))


def expect(
    record: TensorRecord,
    reference: Array,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    limits: Limits | None = None,
) -> ExpectedTensor:
    """Put the reference's tensor beside the device's.

    Args:
        record: the device's tensor; where it has elements, statistics are those of its host layout.
        reference: the counterpart, in ONNX's order of axes.
        rtol: for the share of single elements within tolerance, relative to the reference's element.
        atol: for the same, on top of it.
        limits: where a pattern is looked for, counts what was left out of the search.

    Raises:
        DumpError: the device's tensor cannot be read.
    """
    reference, marks = _in_range(record, reference)
    if record.payload is None or record.shape is None or why_opaque(record.dtype):
        return _by_statistics(record, reference, marks)
    array = load(record.payload, record.dtype, record.shape)
    try:
        host = host_array(array, record, _LAYOUTS.get(reference.ndim, "ND"))
    except LayoutError:
        return _by_statistics(record, reference, marks | {LAYOUT})
    actual = replace(record, shape=host.shape, stats=tensor_stats(host), format="")
    golden = _as(record, reference, stats=tensor_stats(reference))
    if squeezed(reference.shape) != squeezed(host.shape):
        return ExpectedTensor(golden, actual, marks=marks)
    golden = replace(golden, shape=host.shape)
    if golden.dtype != record.dtype:
        return ExpectedTensor(golden, actual, marks=marks)
    reference = reference.reshape(host.shape)
    if reference.dtype != host.dtype and host.dtype.kind in "iub" and reference.dtype.kind in "iub":
        wide = np.result_type(reference.dtype, host.dtype, np.int8)
        reference, host = reference.astype(wide), host.astype(wide)
    try:
        difference = compare_tensors(reference, host, rtol=rtol, atol=atol)
    except RequestError as error:
        return ExpectedTensor(golden, actual, PairElements(note=str(error)), marks)
    found = ExpectedTensor(golden, actual, PairElements(difference=difference), marks)
    if limits is None or not found.differs:
        return found
    layout = _LAYOUTS.get(host.ndim, "")
    return replace(found, pattern=find_pattern(reference, host, difference, layout=layout, limits=limits))


def _in_range(record: TensorRecord, reference: Array) -> tuple[Array, frozenset[str]]:
    """Return the reference with what 16 bits cannot hold as the device holds it: infinite, or the largest."""
    if record.dtype not in _LARGEST or reference.dtype.kind != "f":
        return reference, frozenset()
    largest, dtype = _LARGEST[record.dtype]
    if np.max(np.abs(reference), where=np.isfinite(reference), initial=0) <= largest:
        return reference, frozenset()
    stats = record.stats
    limits = [v for v in (stats.max, stats.min) if v is not None] if stats else []
    printed = [f"{abs(value):.6g}" for value in limits]  # with the digits that ACL's statistics carry
    if limits and all(abs(v) <= largest for v in limits) and max(printed) == f"{largest:.6g}":
        finite = np.isfinite(reference)
        return np.where(finite, np.clip(reference, -largest, largest), reference), frozenset({OVERFLOW})
    with np.errstate(over="ignore", invalid="ignore"):  # signalling NaNs
        halves = reference.astype(dtype)
        infinite = np.isinf(halves)
        if not infinite.any():
            return reference, frozenset()
        return np.where(infinite, halves.astype(reference.dtype), reference), frozenset({OVERFLOW})


def _as(record: TensorRecord, reference: Array, *, stats: Stats) -> TensorRecord:
    """Return the reference as a record: of the device's type where both are of one kind."""
    name = reference.dtype.name
    return replace(
        record,
        dtype=record.dtype if _family(record.dtype) in (_family(name), "") else name,
        shape=reference.shape,
        stats=stats,
        payload=None,
        original_shape=None,
        note="",
    )


def _family(dtype: str) -> str:
    """Kind of a type, bool with the integers as the device stores it; "" for an unknown type."""
    if dtype == UNKNOWN or dtype not in BY_NAME:
        return ""
    return _FAMILIES.get(BY_NAME[dtype].kind, "")


def _by_statistics(record: TensorRecord, reference: Array, marks: frozenset[str]) -> ExpectedTensor:
    """Compare statistics as the device computes them, over its own layout, padding included."""
    by_acl = record.stats is not None and record.stats.digits is not None
    stats = tensor_stats(reference, acl=by_acl)
    golden = _as(record, reference, stats=stats)
    count = math.prod(record.shape) if record.shape is not None else None
    if record.stats is not None and record.stats.count is not None:
        count = record.stats.count
    if not reference.size and not count:
        record = replace(record, stats=None)  # what producers write for no elements means nothing
        golden = replace(golden, stats=None)
    wanted, turned = reference.shape, _AXES.get(record.format)
    if turned and record.shape is not None and len(turned) == len(wanted) == len(record.shape):
        wanted = tuple(wanted[axis] for axis in turned)
    if not _same_shape(record, wanted, count):
        return ExpectedTensor(replace(golden, shape=wanted), record, marks=marks)
    golden = replace(golden, shape=record.shape)
    if count is None or count == reference.size or record.stats is None:
        return ExpectedTensor(golden, record, marks=marks)
    # Behind padding of any value the extremes are the tensor's, or beyond them.
    high, low, own = stats.max, stats.min, record.stats
    if high is not None and own.max is not None:
        high = max(high, own.max)
    if low is not None and own.min is not None:
        low = min(low, own.min)
    known = replace(stats, count=own.count, max=high, min=low, avg=None, l2norm=None)
    golden = replace(golden, stats=known)
    actual = replace(record, stats=replace(record.stats, avg=None, l2norm=None))
    return ExpectedTensor(golden, actual, marks=marks | {PADDED})


def _same_shape(record: TensorRecord, shape: tuple[int, ...], count: int | None) -> bool:
    """Return whether two shapes are one, but for axes of one element, layout and padding."""
    if record.shape is None:
        return True
    if is_private(record):
        if known := record.original_shape:
            return squeezed(known) == squeezed(shape)
        return count is not None and count >= math.prod(shape)
    return squeezed(record.shape) == squeezed(shape)
