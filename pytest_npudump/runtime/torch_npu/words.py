"""What the adapter for torch_npu has to say of a run that shows nothing, or would."""

from pytest_npudump.runtime.pyacl.overflow_mode import blind

IDLE = (
    "no operator ran on the NPU while the dump was on: make the test's tensors on the device 'npu', and run "
    "them inside the test or a function-scoped fixture (CANN writes no statistics for operators captured "
    "into a graph, and none of eager operators with dump_level='op')"
)
UNSEEN = (
    "no operator ran on the NPU in the test's own thread while the dump was on: move the model to the device "
    "'npu' as well as its input (copies and newly made tensors do not count), and run it eagerly, inside the "
    "test or a function-scoped fixture; operators in other threads, in a replayed graph or in a graph of "
    "torch.compile are not seen here: run one of them in the test's thread, or test with scene='op'"
)
RELEASED = (
    "the test took npu_dump.config_path or torchair_config(), so it has to switch the dump on itself: "
    "compile its model with that configuration, or call init_dump() and set_dump(path) of "
    "torch_npu.npu.utils, which raise where torch_npu.npu.set_dump says nothing. TorchAir reads "
    "dump_config_path only with the first graph of a process: give such tests isolation='process'"
)
INF_NAN = blind("set INF_NAN_MODE_FORCE_DISABLE=1 before torch_npu starts")
INITIALISED = (
    "scene='overflow': the NPU was initialised before the dump, and CANN decides once a process, at its "
    "first operator, whether overflows are dumped; leave out isolation='none', so that the test gets a "
    "process of its own, and use no NPU while test modules and conftest.py are imported"
)
EAGER = (
    "while operators are looked for in this scene, this torch runs functions of torch.compile uncompiled; to "
    "test the graph itself takes one with TorchDispatchMode.ignore_compile_internals, as 2.13 has it"
)

_EAGERLY = "run the model eagerly under the marker"
_ONE_REPLAY = (
    'dump_data="tensor" (CANN 9.1.0 or later), with the graph captured inside the test and replayed once'
)
GRAPH_STATS = (
    f"CANN computes no statistics of operators in a captured graph and reports no error; {_EAGERLY}, or take "
    f"{_ONE_REPLAY}"
)
GRAPH_OVERFLOW = f"CANN looks for no overflow in a captured graph and reports no error; {_EAGERLY}"
GRAPH_CALLBACK = (
    f'with transport="callback" nothing of a captured graph is handed over; {_EAGERLY}, or take '
    f'transport="files" and {_ONE_REPLAY}'
)
GRAPH_UNKNOWN = f"whether CANN's watcher sees operators in a captured graph is not known; {_EAGERLY}"
GRAPH_IN_OLD_CANN = (
    "whether CANN {} dumps operators in a captured graph is not known (9.1.0 and later do); " + _EAGERLY
)
GRAPH_OF_THE_TEST = (
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
