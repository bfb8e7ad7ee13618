"""The metadata that checks of a log directory need: topic ids and the directories of brokers."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sparklog.errors import DecodeError
from sparklog.model import Uuid
from sparklog.wire.schema import Message
from sparklog_server.disk.door import Disk, DiskFile
from sparklog_server.log.directory.identity import encode_uuid
from sparklog_server.log.segment.segment import LOG_SUFFIX
from sparklog_server.log.segment.sound_batches import Unsound, sound_batches
from sparklog_server.metadata.records import (
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    records_of,
)

_SNAPSHOT_SUFFIX = ".checkpoint"


@dataclass(slots=True)
class KnownMetadata:
    """Topic ids by name, the directories that each broker registered, and the directories of each
    partition.
    """

    topic_ids: dict[str, Uuid] = field(default_factory=dict)
    log_dirs: dict[int, list[Uuid]] = field(default_factory=dict)
    placed: dict[tuple[Uuid, int], list[Uuid]] = field(default_factory=dict)

    def take(self, record: Message) -> None:
        """Apply one record."""
        if isinstance(record, TopicRecord):
            self.topic_ids[record.name] = Uuid(record.topic_id)
        elif isinstance(record, RemoveTopicRecord):
            self.topic_ids = {name: one for name, one in self.topic_ids.items() if one != record.topic_id}
        elif isinstance(record, RegisterBrokerRecord):
            self.log_dirs[record.broker_id] = [Uuid(one) for one in record.log_dirs]
        elif isinstance(record, PartitionRecord):
            self.placed[Uuid(record.topic_id), record.partition_id] = [
                Uuid(one) for one in record.directories
            ]


def read_metadata(disk: Disk, directory: str, known: KnownMetadata) -> None:
    """Replay the newest snapshot and the sound batches of a metadata log. Raises StorageError."""
    names = disk.list(directory)
    snapshots = [name for name in names if name.endswith(_SNAPSHOT_SUFFIX) and name[:20].isdecimal()]
    for name in [*snapshots[-1:], *(name for name in names if name.endswith(LOG_SUFFIX))]:
        for record in records_in_file(disk.open(f"{directory}/{name}")):
            known.take(record)


def records_in_file(file: DiskFile, start: int = 0) -> Iterator[Message]:
    """The metadata records of the sound batches from byte `start` on; records of an unknown version are left
    out. Raises StorageError.
    """
    for found in sound_batches(file):
        for position, header in () if isinstance(found, Unsound) else found:
            if position < start:
                continue
            try:
                for _, record in records_of(file.pread(position, header.size)):
                    yield record
            except DecodeError:
                continue


def name_of(record: Message) -> str:
    """A short description of a record."""
    kind = type(record).__name__
    if isinstance(record, TopicRecord):
        return f"{kind} {record.name}"
    if isinstance(record, RemoveTopicRecord):
        return f"{kind} {encode_uuid(Uuid(record.topic_id))}"
    return kind
