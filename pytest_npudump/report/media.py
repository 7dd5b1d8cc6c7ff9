"""The media of a whole session: a row each makes an option of ``npudump report``, and one of pytest.

A medium is a row of :data:`MEDIA` and a module of this room with a ``write`` (see :class:`Writer`), which is
imported when somebody asks for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pytest_npudump.language import mark
from pytest_npudump.settings import Option

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npudump.report.view import SessionView


class Writer(Protocol):
    """Writes a medium: ``write`` of its module."""

    def __call__(self, view: SessionView, folder: Path, name: str = "", /) -> list[Path]:
        """Write a session into a folder, made if missing, each file whole or not at all; return the files.

        Args:
            view: the session.
            folder: where to.
            name: for the names of files, where one folder takes several sessions: ranks have one each.

        Raises:
            NpudumpError: a file cannot be written, or an extra is not installed.
        """


class Medium(NamedTuple):
    """A medium of a whole session.

    Attributes:
        module: which writes it, below this room.
        flags: of its option of ``npudump report``, which takes a folder.
        help: of that option.
        written: the line that says where a file is.
        option: its option of pytest, a switch whose name is the folder's, into which ``npudump report``
            without options writes, too; None where it has none.
        takes: a package that it needs, and the extra that has it; two times "" for none.
        spoken: whether people read it, in their language; a program's is English.
    """

    module: str
    flags: str
    help: str
    written: str
    option: Option | None = None
    takes: tuple[str, str] = ("", "")
    spoken: bool = True

    @property
    def dest(self) -> str:
        """The attribute of parsed arguments that its option of ``npudump report`` fills."""
        return self.flags.split()[-1].lstrip("-").replace("-", "_")

    @property
    def write(self) -> Writer:
        """Its writer."""
        writer: Writer = import_module(f"{__package__}.{self.module}").write
        return writer


MEDIA = (
    Medium(
        "html.page",
        flags="-o --output",
        help="write a page into this folder, index.html, one file without network access; default: report "
        "beside the results, if no option is given",
        written=mark("page: {path}"),
        option=Option(
            "report",
            default=False,
            help="write an HTML page of the marked tests, report/index.html in the output folder (extra "
            "report)",
            typed=True,
        ),
        takes=("jinja2", "report"),
    ),
    Medium(
        "charts",
        flags="--plots",
        help="write pictures into this folder, one folder per test: run.svg (every tensor by error and "
        "tolerance) and tensor-N.svg (tensors whose elements were compared)",
        written=mark("picture: {path}"),
    ),
    Medium(
        "model_explorer",
        flags="--node-data",
        help="write one file per test, by which Model Explorer colours the ONNX model by error",
        written=mark("node data: {path}"),
        spoken=False,
    ),
)
