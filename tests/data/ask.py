"""No sample: ``python -IS ask.py SOCKET WORDS`` is as the words are, in a process that ``warm.py`` forks.

It imports next to nothing, and is small, as it is started from nothing for each of them.
"""

from __future__ import annotations

import _socket
import os
import sys


def begin(path: str, words: list[str], streams: tuple[int, ...]) -> _socket.socket:
    """Have a command run with these streams, and return where its exit code comes.

    A descriptor behind the three streams is its too; its number there becomes its last word.
    """
    parts = [
        os.getcwd(),  # noqa: PTH109 - pathlib is as long to import as all else
        *words,
        "",
        *(f"{name}={value}" for name, value in os.environ.items()),
    ]
    message = "\0".join(parts).encode(errors="surrogateescape")
    server = _socket.socket(_socket.AF_UNIX)
    server.connect(path)
    numbers = b"".join(number.to_bytes(4, sys.byteorder) for number in streams)
    head = len(message).to_bytes(4, "big")
    server.sendmsg([head], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
    server.sendall(message)
    return server


def ask(path: str, words: list[str], streams: tuple[int, ...] = (0, 1, 2)) -> int:
    """Have a command run with these streams; return its exit code, or less than 0 by a signal."""
    server = begin(path, words, streams)
    answer = server.recv(4)
    server.close()
    return int.from_bytes(answer, "big", signed=True) if answer else 255


if __name__ == "__main__":
    ended = ask(sys.argv[1], sys.argv[2:])
    if ended < 0:
        os.kill(os.getpid(), -ended)  # as the command was
    sys.exit(ended)
