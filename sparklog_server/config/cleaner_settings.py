"""A part of `settings`: each field is the definition of a broker key."""

from typing import Annotated

import msgspec

from .keys import DOUBLE_MAX, Key, Kind, Update
from .kinds import boolean as _boolean
from .kinds import integer as _int
from .kinds import long as _long

_MIB = 1 << 20
_CLUSTER = Update.CLUSTER_WIDE


class CleanerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of log compaction. Durations in ms, sizes in bytes."""

    enable: Annotated[
        bool,
        _boolean(
            "log.cleaner.enable",
            "Enable compaction. If false, topics with `cleanup.policy=compact` grow without limit.",
        ),
    ] = True
    threads: Annotated[
        int, _int("log.cleaner.threads", "The number of logs compacted at the same time.", 0, update=_CLUSTER)
    ] = 1
    dedupe_buffer_size: Annotated[
        int,
        _long(
            "log.cleaner.dedupe.buffer.size",
            "The memory for the keys of a compaction, 24 bytes each, over all threads.",
            update=_CLUSTER,
        ),
    ] = 128 * _MIB
    io_buffer_load_factor: Annotated[
        float,
        Key(
            "log.cleaner.io.buffer.load.factor",
            Kind.DOUBLE,
            "The maximum load factor of the compaction's key table; below 1.",
            update=_CLUSTER,
        ),
    ] = 0.9
    io_max_bytes_per_second: Annotated[
        float,
        Key(
            "log.cleaner.io.max.bytes.per.second",
            Kind.DOUBLE,
            "The maximum bytes per second that compaction reads and writes.",
            update=_CLUSTER,
        ),
    ] = DOUBLE_MAX
    backoff_ms: Annotated[
        int,
        _long("log.cleaner.backoff.ms", "The pause of compaction when no log needs it.", 0, _CLUSTER),
    ] = 15_000
