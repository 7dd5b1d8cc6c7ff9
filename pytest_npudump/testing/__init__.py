"""Public: what a runtime or a file format outside of this package must do, as tests to subclass.

For who offers one as an entry point (:mod:`pytest_npudump.runtime.registry`,
:mod:`pytest_npudump.dump.files.formats`); ours pass the same tests. Needs the extra ``testing``::

    from pytest_npudump.testing import FormatConformance, Sample

    class TestMyFormat(FormatConformance):
        samples = (Sample(DATA / "two.my", {"conv1:output.0": numpy.load(DATA / "conv1.npy")}),)

        def read(self, path):
            return FORMAT.read(path)

``runtimes`` and ``file_formats`` hold the tests.
"""

from pytest_npudump.testing.file_formats import FormatConformance, Sample
from pytest_npudump.testing.runtimes import RuntimeConformance

__all__ = ["FormatConformance", "RuntimeConformance", "Sample"]
