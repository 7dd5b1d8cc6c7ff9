"""Path of a test's golden file: ``tests/test_ocr/test_classifier[fp16].yaml`` under the golden directory.

The path is made of the test's file, class chain, function name and parameter id. A part in plain lower-case
ASCII stands as it is; any other is made presentable and carries a hash of what it was, so that no two tests
share a file on any file system, whatever it makes of case, Unicode forms, dots and reserved names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path, PurePath

_SUFFIX = ".yaml"
_LONGEST_PART = 100
_LONGEST_VARIANT = 30
"""With these, ``part@variant.safetensors`` has at most 143 bytes, which even encrypted file systems take."""

_HASH_LENGTH = 10
_PLAIN = re.compile(r"[a-z0-9_][a-z0-9_-]*")
_PLAIN_NAME = re.compile(r"[a-z0-9_]+")
_PLAIN_PARAMETERS = re.compile(r"[a-z0-9_.,+=-]*")
_PLAIN_VARIANT = re.compile(r"[a-z0-9_][a-z0-9_-]*(?:\.[a-z0-9_-]+)*")
_HASHED = re.compile(rf"-[0-9a-f]{{{_HASH_LENGTH}}}\Z")
_OF_RANK = re.compile(rf"_(rank\d+of\d+)-[0-9a-f]{{{_HASH_LENGTH}}}\Z")
_UNPRESENTABLE = re.compile(r"[^A-Za-z0-9_.,+=\[\]-]+")
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9]|conin|conout)\Z", re.IGNORECASE)


def golden_path(
    root: Path,
    *,
    test_file: PurePath,
    classes: Sequence[str],
    name: str,
    param_id: str | None,
    variant: str = "",
) -> Path:
    """The golden file of a test; two tests never share one, and none lies outside ``root``.

    The test file gives directories, its ``.py`` dropped. Classes stand in the file's name, before the
    function: as directories they could meet those of a test file.

    Args:
        root: the golden directory.
        test_file: relative to rootdir; ``..`` and absolute paths are kept inside ``root`` too.
        classes: names of the classes around the test, outermost first.
        name: of the function, without parameters.
        param_id: id of the parameters, without brackets; None for a test without.
        variant: name of a variant (SoC, runtime); "" for the file that counts where there is none.
    """
    *folders, file = test_file.parts or ("",)
    stem = file.removesuffix(".py")
    directory = root.joinpath(
        *(_part(folder, folder, plain=_PLAIN.fullmatch(folder) is not None) for folder in folders),
        _part(stem, file, plain=stem != file and _PLAIN.fullmatch(stem) is not None),
    )
    part = _test(classes, name, param_id) + (f"@{_variant(variant)}" if variant else "")
    return directory / f"{part}{_SUFFIX}"


def is_variant(spelled: str, name: str) -> bool:
    """Return whether a file's variant is one that runs name, or a rank's own of it.

    Args:
        spelled: what stands behind ``@`` in the file's name.
        name: as an option takes it, or as the file spells it.
    """
    of_ranks, cut = _variant(f"{name}@rank0of0"), -_HASH_LENGTH
    # The name of a rank is cut off where the variant's is long, and its hash tells nothing.
    is_cut = len(of_ranks) == _LONGEST_VARIANT and _HASHED.search(spelled) is not None
    rank = _OF_RANK.search(spelled)
    whole = rank is not None and spelled == _variant(f"{name}@{rank[1]}")
    return whole or spelled in {name, _variant(name)} or (is_cut and spelled[:cut] == of_ranks[:cut])


def _test(classes: Sequence[str], name: str, param_id: str | None) -> str:
    shown = ".".join((*classes, name)) + ("" if param_id is None else f"[{param_id}]")
    plain = all(_PLAIN_NAME.fullmatch(part) for part in (*classes, name))
    plain = plain and (param_id is None or _PLAIN_PARAMETERS.fullmatch(param_id) is not None)
    return _part(shown, json.dumps([*classes, name, param_id]), plain=plain)


def _variant(raw: str) -> str:
    return _part(raw, raw, plain=_PLAIN_VARIANT.fullmatch(raw) is not None, longest=_LONGEST_VARIANT)


def _part(shown: str, raw: str, *, plain: bool, longest: int = _LONGEST_PART) -> str:
    """``shown`` where it may stand as it is, else what is presentable of it and a hash of ``raw``."""
    slug = _UNPRESENTABLE.sub("_", shown).lstrip(".-")
    reserved = _RESERVED.match(slug.partition(".")[0]) is not None
    if plain and not reserved and len(shown) <= longest and not _HASHED.search(shown):
        return shown
    if reserved or not slug:
        slug = f"_{slug}"
    digest = blake2b(raw.encode("utf-8", "surrogatepass"), digest_size=_HASH_LENGTH // 2).hexdigest()
    return f"{slug[: longest - _HASH_LENGTH - 1]}-{digest}"
