"""Division of the process's descriptors, so that connections never use those reserved for files.

limit (RLIMIT_NOFILE)
├── reserve        listening sockets, locks, syncs, checkpoints, jobs: 256, or a quarter of a small limit
├── files          open segments, and removed ones that replies still read: `sparklog.open.files.max`,
│                  or half of the rest
└── connections    `max.connections`, or the rest
"""

import resource
import sys
from typing import Final, NamedTuple

RESERVE: Final = 256
_RESERVE_SHARE: Final = 4
_UNLIMITED: Final = 1 << 20


class Shares(NamedTuple):
    """The most descriptors that segment files and connections may hold."""

    files: int
    connections: int


def raise_limit() -> int:
    """Raise the soft limit of descriptors to the hard one, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard and sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def shared(limit: int, open_files_max: int) -> Shares:
    """The shares of a process that may hold `limit` descriptors."""
    reserve = min(RESERVE, limit // _RESERVE_SHARE)
    files = max(1, min(open_files_max, (limit - reserve) // 2))
    return Shares(files, max(1, limit - reserve - files))
