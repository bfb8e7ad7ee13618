"""What a read asks the brokers before it plans: which partitions there are, and where their logs start and end."""

import re
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from sparklog.client.admin import EARLIEST, LATEST, Admin, Topic
from sparklog.client.failures import UnknownTopic
from sparklog.model import Offset, TopicPartition
from sparklog.spark.options import Options


class SubscribedTopics:
    """The topics that a read is about, as the brokers see them now; keeps one client, opened by the first question."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._admin: Admin | None = None

    def partitions(self) -> list[TopicPartition]:
        """Every partition that is read, in order; raises UnknownTopic where nothing is, or one that a strict read wants is not there."""
        if self._options.assign is not None:
            topics = self._named(tuple(dict.fromkeys(tp.topic for tp in self._options.assign)))
            there = _partitions(topics)
            missing = [str(tp) for tp in self._options.assign if tp not in there]
            if missing and self._options.fail_on_data_loss:
                raise UnknownTopic(f"no such partition: {', '.join(missing)}")
            return [tp for tp in self._options.assign if tp in there]
        if self._options.subscribe is not None:
            return sorted(_partitions(self._named(self._options.subscribe)))
        pattern = re.compile(self._options.subscribe_pattern or "")
        return sorted(_partitions(topic for name, topic in self._client().list_topics().items() if pattern.fullmatch(name)))

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The log start offset of each."""
        return self._offsets(partitions, EARLIEST)

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The offset after the last record of each that can be read."""
        return self._offsets(partitions, LATEST)

    def close(self) -> None:
        """Drop the connections; the next question opens them again."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _named(self, names: tuple[str, ...]) -> list[Topic]:
        if self._options.fail_on_data_loss:
            return list(self._client().describe_topics(names).values())
        found: list[Topic] = []
        for name in names:
            try:
                found += self._client().describe_topics([name]).values()
            except UnknownTopic:
                continue  # gone, and the user said to go on with what is left
        return found

    def _offsets(self, partitions: Iterable[TopicPartition], position: int) -> dict[TopicPartition, Offset]:
        asked = dict.fromkeys(partitions, position)
        if not asked:
            return {}
        isolation = self._options.client.isolation_level
        listed = self._client().list_offsets(asked, isolation_level=isolation)
        return {tp: found.offset for tp, found in listed.items()}

    def _client(self) -> Admin:
        if self._admin is None:
            self._admin = Admin.from_settings(self._options.client)
        return self._admin


def _partitions(topics: Iterable[Topic]) -> set[TopicPartition]:
    return {TopicPartition(topic.name, p.partition) for topic in topics for p in topic.partitions}
