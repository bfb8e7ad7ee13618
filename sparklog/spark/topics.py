"""Facts that a read fetches from the brokers before it plans: partitions, log start and end offsets, log
sizes.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from sparklog.client.admin.admin import EARLIEST, LATEST, Admin, ItemsFailed, Topic
from sparklog.client.admin.calls import Caller
from sparklog.client.admin.topics import deleted_topics
from sparklog.client.failures import UnknownTopic
from sparklog.errors import BrokerError, ErrorCode, SparklogError
from sparklog.model import ZERO_UUID, Offset, TopicPartition, Uuid
from sparklog.spark import positions
from sparklog.spark.offsets import PartitionOffsets
from sparklog.spark.options import Options
from sparklog.spark.positions import Position


class TopicNotVisible(SparklogError):
    """A read needs a topic that was not deleted, and that the principal cannot see."""


def is_out_of_sight(error: SparklogError) -> bool:
    """Whether an error says that a topic does not exist, or that the principal may not describe it."""
    return isinstance(error, UnknownTopic) or (
        isinstance(error, BrokerError) and error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )


@dataclass(frozen=True, slots=True)
class TopicsNow:
    """The partitions of a read, in order, and the ids of their topics, if brokers have ids."""

    partitions: tuple[TopicPartition, ...]
    ids: Mapping[str, Uuid]


class SubscribedTopics:
    """The current state of the topics of a read; keeps one client, which the first request opens."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._admin: Admin | None = None
        self._caller: Caller | None = None

    def look(self, *, is_strict: bool = True) -> TopicsNow:
        """Every partition of the read. A named topic that does not exist raises UnknownTopic; if not
        strict, it is left out.
        """
        topics = self._topics(is_strict=is_strict)
        there = {TopicPartition(topic.name, p.partition) for topic in topics for p in topic.partitions}
        if self._options.assign is not None:
            missing = [str(tp) for tp in self._options.assign if tp not in there]
            if missing and is_strict:
                raise UnknownTopic(
                    f"option 'assign' names partitions that do not exist: {', '.join(missing)}"
                )
            there.intersection_update(self._options.assign)
        read = {tp.topic for tp in there}
        ids = {t.name: t.topic_id for t in topics if t.name in read and t.topic_id != ZERO_UUID}
        return TopicsNow(tuple(sorted(there)), ids)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The log start offset of each partition."""
        return self.offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The high watermark of each partition, or its last stable offset in a read_committed read."""
        return self.offsets(dict.fromkeys(partitions, LATEST))

    def offsets(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset]:
        """The offset of each partition at a landmark, or of its first record at or after a time in
        milliseconds; -1 if there is none.
        """
        if not asked:
            return {}
        listed = self._client().list_offsets(asked, isolation_level=self._options.client.isolation_level)
        return {tp: found.offset for tp, found in listed.items()}

    def resolve(
        self,
        where: Position,
        *,
        option: str,
        earliest: PartitionOffsets,
        latest: PartitionOffsets,
        now_ms: int,
        must_match: bool = False,
    ) -> dict[TopicPartition, Offset]:
        """The offset of every partition of `latest`; see `positions.resolve`."""
        at_time = self.offsets(positions.timestamps_of(where, latest, option=option, now_ms=now_ms))
        return positions.resolve(
            where, option=option, earliest=earliest, latest=latest, at_time=at_time, must_match=must_match
        )

    def deleted(self, ids: Mapping[str, Uuid]) -> set[str]:
        """Those of the topics, with their ids (zeros: unknown), that the cluster reports as deleted. A topic
        that a listing leaves out may be one that the principal may not describe.
        """
        if self._caller is None:
            self._caller = Caller(self._options.client)
        return deleted_topics(self._caller, ids)

    def sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Bytes of each log on its brokers' disks, of the largest replica; partitions of unknown size are
        left out.
        """
        wanted = list(partitions)
        found: dict[TopicPartition, int] = {}
        if not wanted:
            return found
        try:
            described = self._client().describe_log_dirs(partitions=wanted)
        except ItemsFailed as failed:
            described = failed.results  # the other replicas have their sizes
        except BrokerError:
            return found  # the principal may lack the permission
        for directories in described.values():
            for directory in directories:
                for tp, replica in directory.replicas.items():
                    if not replica.is_future:
                        found[tp] = max(found.get(tp, 0), replica.size_bytes)
        return found

    def close(self) -> None:
        """Closes the connections; the next request opens them again."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None
        if self._caller is not None:
            self._caller.network.close()
            self._caller = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _topics(self, *, is_strict: bool) -> list[Topic]:
        if self._options.subscribe_pattern is not None:
            pattern = re.compile(self._options.subscribe_pattern)
            return [topic for name, topic in self._client().list_topics().items() if pattern.fullmatch(name)]
        names = self._options.subscribe or tuple(dict.fromkeys(tp.topic for tp in self._options.assign or ()))
        try:
            return list(self._client().describe_topics(names).values())
        except UnknownTopic as error:
            if is_strict:
                option = "assign" if self._options.subscribe is None else "subscribe"
                raise UnknownTopic(f"option {option!r} names a topic that does not exist: {error}") from None
        every = self._client().list_topics(include_internal=True)
        return [every[name] for name in names if name in every]

    def _client(self) -> Admin:
        if self._admin is None:
            self._admin = Admin.from_settings(self._options.client)
        return self._admin
