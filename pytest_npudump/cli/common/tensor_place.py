"""Where stored tensors are, for a command: as pytest's configuration says, unless options say otherwise."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.doctor.pytest_config import locate, parse_options, words_of
from pytest_npudump.golden.objects.tensor_store import TensorStore
from pytest_npudump.language.translation import gettext as _

if TYPE_CHECKING:
    from collections.abc import Mapping

_STORE, _CACHE = "npudump_tensor_store", "npudump_tensor_cache"


def tensor_place(folder: Path, url: str = "", cache: str = "") -> TensorStore:
    """Return where stored tensors are.

    Args:
        folder: a pytest that starts here would run the tests.
        url: the store, whatever the configuration says; "" for that.
        cache: the folder of the cache, the same.

    Raises:
        ConfigError: pytest's configuration cannot be read.
    """
    file, ini = locate(folder.absolute())
    root = file.parent if file is not None else folder.absolute()
    told = {name: str(ini.get(name, "")) for name in (_STORE, _CACHE)}
    told |= _given(ini.get("addopts", ""), root, _("addopts of {file}").format(file=file))
    told |= _given(os.environ.get("PYTEST_ADDOPTS", ""), root, "PYTEST_ADDOPTS")
    own = cache or (str(root / Path(told[_CACHE]).expanduser()) if told[_CACHE] else "")
    return TensorStore(url or told[_STORE], own)


def _given(words: Any, folder: Path, origin: str) -> Mapping[str, str]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--npudump-tensor-store", dest=_STORE)
    parser.add_argument("--npudump-tensor-cache", dest=_CACHE)
    found = vars(parse_options(parser, words_of(words, origin), folder, origin))
    return {name: value for name, value in found.items() if value is not None}
