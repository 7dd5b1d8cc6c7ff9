"""Which parts of an acl.json a chip does not do; CANN's checker looks at none of this."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STATISTICS = ("Max", "Min", "Avg", "Nan", "Negative Inf", "Positive Inf", "L2norm")
"""All names of ``dump_stats``, in the order of CANN's bits."""

_A2 = re.compile(r"ascend910b", re.IGNORECASE)


def default_statistics(soc: str) -> tuple[str, ...]:
    """Names for ``dump_stats`` where a test names none: all on a chip that computes l2norm.

    The key is documented for Atlas A2 only; without it CANN computes all but l2norm.

    Args:
        soc: the name that ``acl.get_soc_name()`` gives (``Ascend910B3``), or ``""`` where it is not known.

    Returns:
        The names; none where the key is to be left out.
    """
    return STATISTICS if _A2.match(soc) else ()


def soc_warnings(dump: Mapping[str, Any], soc: str) -> tuple[str, ...]:
    """Say what of ``dump`` will not work on a chip.

    Args:
        dump: the ``dump`` object of an acl.json that adump accepts.
        soc: the name that ``acl.get_soc_name()`` gives (``Ascend910B3``), or ``""`` where it is not known.
    """
    return tuple(_warnings(dump, soc))


def soc_notes(dump: Mapping[str, Any], soc: str) -> tuple[str, ...]:
    """Say of what in ``dump`` a chip does less without a word; nothing of what it refuses aloud.

    Args:
        dump: the same.
        soc: the same; nothing is said where it is not known.
    """
    return tuple(_unsupported(dump, soc)) if soc else ()


def _unsupported(dump: Mapping[str, Any], soc: str) -> Iterator[str]:
    if "dump_stats" in dump and not _A2.match(soc):
        where = f"this is {soc}" if soc else "the chip is not known here"
        yield f"dump_stats: documented for Atlas A2 (Ascend910B) only, and {where}"


def _warnings(dump: Mapping[str, Any], soc: str) -> Iterator[str]:
    yield from _unsupported(dump, soc)
    if dump.get("dump_scene") == "aic_err_detail_dump":
        yield (
            "dump_scene: aic_err_detail_dump needs a chip and a driver that can do it, else aclmdlSetDump "
            "returns 500000; set it before acl.rt.set_device"
        )
