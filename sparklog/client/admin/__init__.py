"""Administration of a cluster: topics, settings, groups, transactions, disks, access.

`Admin` has all calls, `AsyncAdmin` the same for asyncio. Each family of calls has its file, imported at the
first use; all of them send by `calls` (the choice of the broker, deadlines, retries, errors of single
items), and ask many brokers at once by `fan_out`. `positions` reads times and offsets as people write them.

It reads and writes no records. Read `calls.py` first, then `topics.py`.
"""

from typing import TYPE_CHECKING

from sparklog.client import lazy_names

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin
    from sparklog.client.admin.calls import ItemsFailed
    from sparklog.client.admin.topics import (
        EARLIEST,
        LATEST,
        MAX_TIMESTAMP,
        CreatedTopic,
        ListedOffset,
        NewPartitions,
        NewTopic,
        Partition,
        Topic,
    )

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "Admin",
    "CreatedTopic",
    "ItemsFailed",
    "ListedOffset",
    "NewPartitions",
    "NewTopic",
    "Partition",
    "Topic",
]

_NAMES = {
    "sparklog.client.admin.admin": ("Admin",),
    "sparklog.client.admin.calls": ("ItemsFailed",),
    "sparklog.client.admin.topics": (
        "EARLIEST",
        "LATEST",
        "MAX_TIMESTAMP",
        "CreatedTopic",
        "ListedOffset",
        "NewPartitions",
        "NewTopic",
        "Partition",
        "Topic",
    ),
}

__getattr__ = lazy_names(__name__, _NAMES)
