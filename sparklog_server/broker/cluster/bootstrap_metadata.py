"""The first records of a cluster whose directories `kafka-storage format` has prepared.

metadata.version        the level of this release, else the start is refused
another feature         its level, or the highest that this release supports if that is lower
kraft.version           left out: it is a control record of raft
another record          as it is, such as the credentials of --add-scram
"""

from collections.abc import Callable

from sparklog.errors import DecodeError
from sparklog.wire.schema import Message
from sparklog_server.disk.door import StorageError
from sparklog_server.log.directory.first_start import BOOTSTRAP_FILE
from sparklog_server.metadata.features import KRAFT_VERSION, METADATA_LEVEL, METADATA_VERSION, SUPPORTED
from sparklog_server.metadata.records import FeatureLevelRecord, records_of


def bootstrap_records(batches: memoryview, log_dir: str, trace: Callable[..., None]) -> tuple[Message, ...]:
    """The records of the batches of the file. Raises StorageError for records with which this release cannot
    begin a cluster.
    """
    try:
        records = [record for _, record in records_of(batches)]
    except DecodeError as error:
        raise _refused(log_dir, str(error)) from error
    found: list[Message] = []
    metadata_level = 0
    for record in records:
        if not isinstance(record, FeatureLevelRecord):
            found.append(record)
            continue
        given = record.feature_level
        if record.name == METADATA_VERSION:
            metadata_level = given
            found.append(record)
        elif record.name != KRAFT_VERSION:
            level = min(given, SUPPORTED.get(record.name, (0, 0))[1])
            if level < given:
                trace("feature-level-lowered", feature=record.name, formatted=given, level=level)
            if level > 0:
                found.append(FeatureLevelRecord(name=record.name, feature_level=level))
    if metadata_level != METADATA_LEVEL:
        raise _refused(
            log_dir,
            f"metadata.version is {metadata_level}, and this release supports {METADATA_LEVEL}: format the "
            f"directory with `kafka-storage format --release-version 4.3`",
        )
    return tuple(found)


def _refused(log_dir: str, reason: str) -> StorageError:
    return StorageError(f"{log_dir}/{BOOTSTRAP_FILE}", "begin a cluster", reason)
