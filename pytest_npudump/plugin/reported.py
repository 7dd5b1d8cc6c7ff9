"""A marked test as its reports tell of it, and what tells it from all others: node ids are not unique."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

ITEM_OF_REPORT = "npudump_item"
"""Attribute of a report that tells its item from all others of the session."""


class Reported(NamedTuple):
    """A marked test as its last report tells of it.

    Attributes:
        nodeid: pytest's name of it, which other tests may share.
        result: what it came to.
        failed: whether pytest counts it as failed.
        file, line: where it stands, relative to rootdir and from 0.
    """

    nodeid: str
    result: Mapping[str, Any]
    failed: bool
    file: str
    line: int
