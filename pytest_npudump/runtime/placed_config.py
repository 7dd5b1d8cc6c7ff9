"""A dump configuration in the place where a program looks for its own, and the program's own put back.

The file that was there is renamed to ``NAME.npudump-backup-DIGEST``, where the digest is that of the content
put in its place; where there was none, an empty ``NAME.npudump-absent-DIGEST`` says so. A run that is killed
leaves one of the two behind; the next run puts the file back, unless somebody has changed it in between.
"""

from __future__ import annotations

import errno
import json
import os
import warnings
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npudump.config.json_file import StrictJsonError, parse, read_config_file
from pytest_npudump.errors import ConfigError
from pytest_npudump.runtime.programs import Placed, interruptible
from pytest_npudump.storage.atomic import held, lock_file

if TYPE_CHECKING:
    from collections.abc import Iterator


_BACKUP = ".npudump-backup-"
_ABSENT = ".npudump-absent-"
_TEMPORARY = ".npudump-tmp"


class LeftBehindWarning(UserWarning):
    """A run that was killed had left its configuration in place; it has been taken away now."""


@dataclass(frozen=True, slots=True)
class _Leftover:
    """What stands for the file that was there before.

    Attributes:
        path: the backup, or the empty file that says there was none.
        absent: whether there was none.
        digest: that of the content put in its place.
    """

    path: Path
    absent: bool
    digest: str


@contextmanager
def placed(target: Path, config: Path) -> Iterator[Placed]:
    """Put the dump of one acl.json into another for the duration of the block.

    The file at ``target`` keeps everything but its key ``dump``. Afterwards it is what it was before, byte
    for byte and with its mode and time, however the block ends.

    Args:
        target: where a program expects its acl.json; a file that is there must be one CANN reads.
        config: the acl.json whose ``dump`` is put there.

    Raises:
        ConfigError: another run uses ``target``, its content is no acl.json, or it cannot be replaced.
    """
    with interruptible(), _exclusive(target):
        _restore_leftover(target)
        root: Any = {}
        if os.path.lexists(target):
            file = read_config_file(target)
            if file.reason is not None:
                raise ConfigError(f"acl_json {file.reason}")
            try:
                root = parse(file.text) if file.text else {}
            except StrictJsonError as error:
                raise ConfigError(
                    f"acl_json {target}: not JSON: {error}; correct it, or name another path"
                ) from None
            if not isinstance(root, dict):
                raise ConfigError(f"acl_json {target}: not a JSON object; correct it, or name another path")
        root["dump"] = json.loads(config.read_text(encoding="utf-8"))["dump"]
        content = (json.dumps(root, indent=2, ensure_ascii=False) + "\n").encode()
        try:
            _put(target, content)
            yield Placed.watch(target)
        finally:
            _put_back(target)


@contextmanager
def _exclusive(target: Path) -> Iterator[None]:
    """Keep other runs off ``target``; the lock lies beside it, where every user of the file finds it."""
    from filelock import Timeout  # noqa: PLC0415 - 25 ms that only such a run needs

    with ExitStack() as stack:
        try:
            if not target.parent.is_dir():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            # By a name that stays the same while a file takes the place of a link there.
            name = Path(os.path.realpath(target.parent)) / f"{target.name}{_TEMPORARY}"
            stack.enter_context(held(lock_file(name), 0))
        except Timeout:
            raise ConfigError(
                f"acl_json {target}: another run has put its configuration there; give each test a path of "
                f"its own, or run them one after another (pytest-xdist: --dist loadgroup and one xdist_group)"
            ) from None
        except OSError as error:
            raise _not_put(target, error) from error
        yield


def _put(target: Path, content: bytes) -> None:
    digest = _digest(content)
    temporary = target.with_name(f"{target.name}{_TEMPORARY}")
    try:
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
            if target.exists():
                os.fchmod(descriptor, target.stat().st_mode & 0o777)
        try:
            if os.path.lexists(target):
                target.rename(target.with_name(f"{target.name}{_BACKUP}{digest}"))
            else:
                target.with_name(f"{target.name}{_ABSENT}{digest}").touch(exist_ok=False)
            temporary.rename(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise _not_put(target, error) from error


def _not_put(target: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"acl_json {target}: a configuration cannot be put there: {error.strerror or error}; the folder "
        f"has to exist and to be writable"
    )


def _put_back(target: Path) -> None:
    leftover = _find(target)
    if leftover is None:
        return
    try:
        if leftover.absent:
            target.unlink(missing_ok=True)
            leftover.path.unlink()
        else:
            leftover.path.replace(target)
    except OSError as error:
        before = "there was none before" if leftover.absent else f"it is kept in {leftover.path}"
        raise ConfigError(
            f"acl_json {target}: the file cannot be put back: {error.strerror or error}; {before}"
        ) from error


def _restore_leftover(target: Path) -> None:
    leftover = _find(target)
    if leftover is None:
        return
    now = target.read_bytes() if target.is_file() else None
    if now is None or _digest(now) == leftover.digest:
        _put_back(target)
        state = "removed" if leftover.absent else "put back as it was before"
        text = f"{target} was left by a run that was killed; it has been {state}"
        warnings.warn(text, LeftBehindWarning, stacklevel=2)
    elif leftover.absent or now == leftover.path.read_bytes():
        leftover.path.unlink()
    else:
        raise ConfigError(
            f"acl_json {target}: a run that was killed left the file as it was before in {leftover.path}, "
            f"and {target.name} has changed since: keep the one you want as {target.name}, delete the other"
        )


def _find(target: Path) -> _Leftover | None:
    prefixes = (f"{target.name}{_BACKUP}", f"{target.name}{_ABSENT}")
    try:
        found = [path for path in target.parent.iterdir() if path.name.startswith(prefixes)]
    except OSError:
        return None  # no folder, no leftover; what is wrong with it shows when the file is put there
    if len(found) > 1:
        names = ", ".join(sorted(path.name for path in found))
        raise ConfigError(
            f"acl_json {target}: {len(found)} backups lie beside it ({names}): keep one at most"
        )
    if not found:
        return None
    absent = found[0].name.startswith(prefixes[1])
    return _Leftover(found[0], absent, found[0].name.removeprefix(prefixes[absent]))


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()
