"""Clients that read, read_committed or read_uncommitted, and fetch offsets of groups; the history records
their responses.
"""

from collections.abc import Callable, Generator
from random import Random
from typing import NamedTuple

from sparklog.client.consumer.chunk import Aborted, whole_batches, without_aborted
from sparklog.errors import ErrorCode, code_of
from sparklog.model import TopicPartition
from sparklog.record.batch import decode_records
from sparklog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from sparklog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from sparklog.wire.schema import Message
from sparklog_server.simulation.clock import VirtualClock
from sparklog_server.simulation.history import History, OffsetRead, Poll
from sparklog_server.simulation.line import SimulatedRequest, Steps

_FETCH, _OFFSET_FETCH = 12, 8
_PAUSE_US = (2_000, 30_000)
_TRIES = 30


class Consumed(NamedTuple):
    """Offsets `[start, limit)` of a partition that were read for a group."""

    partition: TopicPartition
    start: int
    limit: int


class Readers:
    """State shared by all readers of one history."""

    def __init__(
        self, clock: VirtualClock, random: Random, history: History, partitions: tuple[TopicPartition, ...]
    ) -> None:
        self._clock = clock
        self._random = random
        self._history = history
        self._partitions = partitions

    def follow(self, name: str, is_over: Callable[[], bool], *, is_committed: bool) -> Steps:
        """Read every partition as it grows."""
        stands = dict.fromkeys(self._partitions, 0)
        while not is_over():
            partition = self._random.choice(self._partitions)
            poll = yield from self.poll(name, partition, stands[partition], is_committed=is_committed)
            if poll is not None:
                self._history.polls.append(poll)
                stands[partition] = poll.limit
            yield self._random.randint(*_PAUSE_US)

    def watch(self, groups: tuple[str, ...], is_over: Callable[[], bool]) -> Steps:
        """Fetch offsets of groups, with and without `require_stable`."""
        while not is_over():
            group, partition = self._random.choice(groups), self._random.choice(self._partitions)
            read = yield from self.offset(group, partition, is_stable=self._random.random() < 0.6)
            if read is not None:
                self._history.offset_reads.append(read)
            yield self._random.randint(*_PAUSE_US)

    def consume(self, group: str) -> Generator[SimulatedRequest | int, Message | None, Consumed | None]:
        """Read from a group's committed offset in some partition; None if there is none, or no response."""
        partition = self._random.choice(self._partitions)
        read = yield from self.offset(group, partition, is_stable=True)
        if read is None or read.is_unstable:
            return None
        self._history.offset_reads.append(read)
        start = 0 if read.found is None else read.found[0]
        poll = yield from self.poll(f"{group}@{self._clock.now.mono_us}", partition, start, is_committed=True)
        if poll is None or poll.limit <= start:
            return None
        self._history.polls.append(poll)
        return Consumed(partition, start, poll.limit)

    def conclude(self, groups: tuple[str, ...]) -> Steps:
        """Read all partitions to their ends after all other clients are done."""
        history = self._history
        for partition in self._partitions:
            for is_committed, into in ((False, history.final_all), (True, history.final_committed)):
                yield from self._to_the_end(partition, into, is_committed=is_committed)
            for group in groups:
                for _ in range(_TRIES):
                    read = yield from self.offset(group, partition, is_stable=True)
                    if read is not None:
                        history.final_offsets.append(read)
                        break

    def _to_the_end(self, partition: TopicPartition, into: list[Poll], *, is_committed: bool) -> Steps:
        whole = Poll("the end", partition, is_committed, 0, 0, (), self._clock.now.mono_us, 0)
        for _ in range(_TRIES):
            poll = yield from self.poll("the end", partition, whole.limit, is_committed=is_committed)
            if poll is None:
                continue
            is_end = poll.limit == whole.limit
            whole = Poll(
                "the end",
                partition,
                is_committed,
                0,
                poll.limit,
                whole.records + poll.records,
                whole.asked_us,
                self._clock.now.mono_us,
            )
            if is_end:
                break
        into.append(whole)

    def poll(
        self, name: str, partition: TopicPartition, start: int, *, is_committed: bool
    ) -> Generator[SimulatedRequest | int, Message | None, Poll | None]:
        """One Fetch; None without a response, or for a retriable error."""
        part = FetchPartition(partition=partition.partition, fetch_offset=start, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=self._random.choice((0, 20)),
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=int(is_committed),
            session_epoch=-1,
            topics=[FetchTopic(topic=partition.topic, partitions=[part])],
        )
        asked_us = self._clock.now.mono_us
        answer = yield SimulatedRequest(request, _FETCH, FetchResponse)
        if not isinstance(answer, FetchResponse):
            return None
        told = answer.responses[0].partitions[0]
        code = code_of(told.error_code)
        if code.is_retriable:
            return None
        assert code in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE), code
        limit, found = start, []
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            limit = -1  # records read before are gone: offsets went back
        elif told.records:
            assert isinstance(told.records, bytes | memoryview)
            records = memoryview(told.records)
            batches, _ = whole_batches(records, check_crcs=True)
            limit = batches[-1][1].next_offset
            aborted = Aborted(told.aborted_transactions or [])
            for run in without_aborted(partition, records, batches, aborted):
                found += [
                    (record.offset, int(record.value or b"-1"))
                    for record in decode_records(run)
                    if record.offset >= start
                ]
        return Poll(
            name, partition, is_committed, start, limit, tuple(found), asked_us, self._clock.now.mono_us
        )

    def offset(
        self, group: str, partition: TopicPartition, *, is_stable: bool
    ) -> Generator[SimulatedRequest | int, Message | None, OffsetRead | None]:
        """The committed offset of a group; None without a response, or for an error other than
        UNSTABLE_OFFSET_COMMIT.
        """
        asked = OffsetFetchRequestGroup(
            group,
            topics=[OffsetFetchRequestTopics(name=partition.topic, partition_indexes=[partition.partition])],
        )
        asked_us = self._clock.now.mono_us
        answer = yield SimulatedRequest(
            OffsetFetchRequest(groups=[asked], require_stable=is_stable), _OFFSET_FETCH, OffsetFetchResponse
        )
        if not isinstance(answer, OffsetFetchResponse) or answer.groups[0].error_code:
            return None
        told = answer.groups[0].topics[0].partitions[0]
        code = code_of(told.error_code)
        is_unstable = code is ErrorCode.UNSTABLE_OFFSET_COMMIT
        if code is not ErrorCode.NONE and not is_unstable:
            return None
        found = (told.committed_offset, int(told.metadata or -1)) if told.committed_offset >= 0 else None
        return OffsetRead(group, partition, is_stable, is_unstable, found, asked_us, self._clock.now.mono_us)
