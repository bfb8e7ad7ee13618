"""A part of `settings`: each field is the definition of a broker key."""

from typing import Annotated

import msgspec

from .kinds import integer as _int
from .kinds import long as _long

_MIB = 1 << 20


class MetadataLogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The segments and snapshots of the metadata log. Durations in ms, sizes in bytes."""

    segment_bytes: Annotated[
        int, _int("metadata.log.segment.bytes", "The segment size of the metadata log.", 8 * _MIB)
    ] = 1_073_741_824
    segment_ms: Annotated[
        int, _long("metadata.log.segment.ms", "The age at which a segment of the metadata log is rolled.")
    ] = 604_800_000
    retention_bytes_max: Annotated[
        int,
        _long(
            "metadata.max.retention.bytes",
            "The total size of the metadata log and its snapshots. Beyond it, the oldest are deleted.",
        ),
    ] = 104_857_600
    retention_ms_max: Annotated[
        int, _long("metadata.max.retention.ms", "The age at which snapshots are deleted.")
    ] = 604_800_000
    bytes_between_snapshots_max: Annotated[
        int,
        _long(
            "metadata.log.max.record.bytes.between.snapshots",
            "The bytes of new metadata records after which a snapshot is written.",
            1,
        ),
    ] = 20_971_520
    snapshot_interval_ms_max: Annotated[
        int,
        _long(
            "metadata.log.max.snapshot.interval.ms",
            "The maximum time between snapshots if there are new records. 0 disables this.",
            0,
        ),
    ] = 3_600_000
    idle_interval_ms_max: Annotated[
        int,
        _int(
            "metadata.max.idle.interval.ms",
            "In a cluster of several nodes, the active controller writes a NoOpRecord when the metadata log "
            "was idle for this long, so that the lag of each node is visible. 0 disables this.",
            0,
        ),
    ] = 500
