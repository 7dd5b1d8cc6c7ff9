"""Lines of the model's source that layers come from, where a dump has them.

MindSpore leaves ``rank_{r}/graphs/ms_output_trace_code_graph_{g}.ir`` beside a dump. Behind the name of an
operator stands what called it, the outermost first, the last of a file of MindSpore's own for its layers::

    # Fullname with scope: (Default/conv1-Conv2d/Conv2D-op0)
    # In file /app/lenet.py:30~36, 4~30/    def construct(self, x):/
    # In file /app/lenet.py:31, 32~42/        x = self.pool(self.relu(self.conv1(x)))/
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

from pytest_npudump.dump.records import sanitise
from pytest_npudump.storage.regular_file import read_small

IR = "rank_[0-9]*/graphs/ms_output_trace_code_graph_*.ir"
"""Place of MindSpore's graphs in a dump path."""

_COMMENT = re.compile(
    r"(?m)^\s+# (?:Fullname with scope: \((?P<name>.*)\)"
    r"|In file (?P<file>.+?):(?P<line>\d+)(?:~\d+)?, \d+~\d+/(?P<text>.*)/)\s*$"
)
_ITS_OWN = re.compile(r"[\\/](?:site|dist)-packages[\\/]mindspore[\\/]")


def code_of(root: Path, layers: Collection[str]) -> dict[str, str]:
    """Return the line of source of each layer that is known, as ``file:line: text``, by name in file names.

    It is the innermost line of a file that is not MindSpore's own, or else the innermost of all. A file
    below the current folder is named from there.
    Of layers that several graphs have, the first graph's counts.

    Args:
        root: a dump path.
        layers: names, raw or as file names spell them.

    Raises:
        FormatError: a graph cannot be read.
    """
    wanted = {sanitise(layer) for layer in layers}
    calls: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for path in sorted(root.glob(IR)) if wanted else ():
        known, name = {*calls}, ""
        for comment in _COMMENT.finditer(read_small(path).decode("utf-8", "replace")):
            if comment["name"] is not None:
                name = sanitise(comment["name"])
            elif name in wanted and name not in known and not comment["text"].lstrip().startswith("def "):
                file = comment["file"].removeprefix(f"{Path.cwd()}{os.sep}")
                place = f"{file}:{comment['line']}: {comment['text'].strip()}"
                calls[name].append((comment["file"], place))
    return {
        name: next((line for file, line in reversed(lines) if not _ITS_OWN.search(file)), lines[-1][1])
        for name, lines in calls.items()
    }
