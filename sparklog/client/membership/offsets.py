"""Committed offsets: commits and lookups, sent to the coordinator until they are answered or expire.

A machine without I/O. Every request is a job that ends once, with an answer or an error; waiting threads
check `is_done`.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from sparklog.client.cluster import Entropy, backoff_us
from sparklog.client.failures import CommitFailed, FencedInstance, RebalanceInProgress
from sparklog.client.membership.member import (
    COORDINATOR_GONE,
    Coordinator,
    Errand,
    GroupMetadata,
    group_refused,
)
from sparklog.client.membership.member import US_PER_MS as _MS
from sparklog.client.settings import ClientSettings
from sparklog.errors import BrokerError, ErrorCode, RequestTimeout, SparklogError, code_of
from sparklog.model import Micros, TopicPartition
from sparklog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from sparklog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from sparklog.wire.schema import Message

VERSION_BEFORE_TOPIC_IDS: Final = 9
JOBS_MAX: Final = 10_000
"""The most commits and lookups that may wait or be in flight."""
_NO_MEMBER_EPOCH: Final = -1


class OffsetAndMetadata(NamedTuple):
    """A position to commit: the offset of the next record to read, metadata text, and the leader epoch of the
    record before it (-1: not known).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[Offsets, SparklogError | None], None]


def positions_of(
    offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets of a caller, validated; raises ValueError for a negative one."""
    positions = {
        TopicPartition(*partition): OffsetAndMetadata(given)
        if isinstance(given, int)
        else OffsetAndMetadata(*given)
        for partition, given in offsets.items()
    }
    for partition, position in positions.items():
        if position.offset < 0:
            raise ValueError(f"{partition}: offset {position.offset} is below zero")
    return positions


class Job:
    """One commit or lookup. Invariant: `error` and the results are set once, when `is_done` is."""

    __slots__ = (
        "asked",
        "attempts",
        "callback",
        "deadline",
        "error",
        "found",
        "is_done",
        "may_retry",
        "not_before",
        "offsets",
        "wanted",
    )

    def __init__(
        self,
        *,
        deadline: Micros,
        offsets: Offsets | None = None,
        wanted: tuple[TopicPartition, ...] = (),
        may_retry: bool = True,
        callback: CommitCallback | None = None,
    ) -> None:
        self.offsets = offsets  # a commit, if not None
        self.wanted = wanted
        self.deadline = deadline
        self.may_retry = may_retry
        self.callback = callback
        self.is_done = False
        self.error: SparklogError | None = None
        self.found: dict[TopicPartition, OffsetAndMetadata] = {}
        self.attempts = 0
        self.not_before = Micros(0)
        self.asked: tuple[int, GroupMetadata] | None = (
            None  # the errand in flight, and the identity with which it was sent
        )


class GroupOffsets:
    """Every job that is not done. Invariant: jobs are sent in the order in which they were added, except
    retries.
    """

    def __init__(self, settings: ClientSettings, coordinator: Coordinator, entropy: Entropy) -> None:
        assert settings.group_id is not None
        self._settings = settings
        self._group_id = settings.group_id
        self._coordinator = coordinator
        self._entropy = entropy
        self._jobs: list[Job] = []
        self._done: list[Job] = []  # finished jobs with a callback to call
        self._number = 0

    @property
    def is_idle(self) -> bool:
        """Whether no job is left."""
        return not self._jobs

    @property
    def has_callbacks(self) -> bool:
        """Whether a finished commit has a callback."""
        return bool(self._done)

    def take_callbacks(self) -> list[Job]:
        """The finished commits with callbacks, in the order in which they finished."""
        done, self._done = self._done, []
        return done

    def add(self, job: Job) -> Job:
        """Add a job; raises CommitFailed if too many are waiting."""
        if len(self._jobs) >= JOBS_MAX:
            raise CommitFailed(
                f"{JOBS_MAX} commits are on their way unanswered: wait for some with a synchronous commit"
            )
        self._jobs.append(job)
        return job

    def errands(self, now: Micros, identity: GroupMetadata, *, sends_epoch: bool) -> list[Errand]:
        """The requests to send now; `sends_epoch` for KIP-848 groups, where lookups are fenced too."""
        for job in [job for job in self._jobs if now >= job.deadline]:
            what = "commit" if job.offsets is not None else "look-up of committed offsets"
            self._end(job, RequestTimeout(f"group {self._group_id!r}: no answer to the {what} in time"))
        waiting = [job for job in self._jobs if job.asked is None]
        if waiting:
            self._coordinator.want()
        if self._coordinator.error is not None:
            for job in waiting:
                self._end(job, self._coordinator.error)
            return []
        if self._coordinator.node is None:
            return []
        errands = []
        for job in waiting:
            if now >= job.not_before:
                self._number += 1
                job.asked = (self._number, identity)
                request = (
                    self._fetch(job, identity, sends_epoch=sends_epoch)
                    if job.offsets is None
                    else self._commit(job.offsets, identity)
                )
                timeout_us = max(1, min(job.deadline - now, self._settings.request_timeout_ms * _MS))
                errands.append(
                    Errand(
                        request, self._coordinator.node, self._number, timeout_us, VERSION_BEFORE_TOPIC_IDS
                    )
                )
        return errands

    def deadline(self) -> Micros | None:
        """The next time to call `errands` without an event before it."""
        times = [job.deadline for job in self._jobs]
        if self._coordinator.node is not None:
            times += [job.not_before for job in self._jobs if job.asked is None]
        return min(times, default=None)

    def replied(self, errand: Errand, reply: Message, now: Micros, identity: GroupMetadata) -> ErrorCode:
        """Process a reply; returns an error that concerns the member, if there is one."""
        job = self._job(errand)
        if job is None or job.asked is None:
            return ErrorCode.NONE
        asked_as = job.asked[1]
        job.asked = None
        if isinstance(reply, OffsetCommitResponse):
            assert job.offsets is not None
            codes = {
                code_of(partition.error_code): f"{topic.name}-{partition.partition_index}"
                for topic in reply.topics
                for partition in topic.partitions
            }
        else:
            assert isinstance(reply, OffsetFetchResponse)
            codes = self._found(job, reply)
        code = next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
        if code is ErrorCode.NONE:
            self._end(job, None)
        elif code is ErrorCode.STALE_MEMBER_EPOCH and identity != asked_as and identity.generation_id >= 0:
            return (
                ErrorCode.NONE
            )  # the epoch has changed while the request was in flight: retry with the new one
        elif code.is_retriable and code is not ErrorCode.OFFSET_METADATA_TOO_LARGE and job.may_retry:
            if code in COORDINATOR_GONE:
                self._coordinator.lost(now)
            self._retry(job, now)
        else:
            if code in COORDINATOR_GONE:
                self._coordinator.lost(now)
            self._end(job, self._error(code, codes[code]))
        return code if identity == asked_as else ErrorCode.NONE

    def failed(self, errand: Errand, error: SparklogError, now: Micros) -> None:
        """The request failed without a reply."""
        job = self._job(errand)
        if job is None:
            return
        job.asked = None
        if isinstance(error, BrokerError) and not error.is_retriable:
            self._end(job, error)
            return
        self._coordinator.lost(now)
        if job.may_retry:
            self._retry(job, now)
        else:
            self._end(job, error)

    # -- inside ----------------------------------------------------------------------------------------------

    def _commit(self, offsets: Offsets, identity: GroupMetadata) -> OffsetCommitRequest:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for partition, position in sorted(offsets.items()):
            committed = OffsetCommitRequestPartition(
                partition.partition, position.offset, position.leader_epoch, position.metadata
            )
            topics.setdefault(
                partition.topic, OffsetCommitRequestTopic(name=partition.topic, partitions=[])
            ).partitions.append(committed)
        is_member = identity.generation_id >= 0
        return OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=identity.generation_id,
            member_id=identity.member_id if is_member else "",
            group_instance_id=identity.group_instance_id if is_member else None,
            topics=list(topics.values()),
        )

    def _fetch(self, job: Job, identity: GroupMetadata, *, sends_epoch: bool) -> OffsetFetchRequest:
        topics: dict[str, OffsetFetchRequestTopics] = {}
        for topic, partition in sorted(job.wanted):
            topics.setdefault(
                topic, OffsetFetchRequestTopics(name=topic, partition_indexes=[])
            ).partition_indexes.append(partition)
        group = OffsetFetchRequestGroup(group_id=self._group_id, topics=list(topics.values()))
        if sends_epoch and identity.generation_id >= 0:
            group.member_id, group.member_epoch = identity.member_id, identity.generation_id
        return OffsetFetchRequest(
            groups=[group], require_stable=self._settings.isolation_level == "read_committed"
        )

    def _found(self, job: Job, reply: OffsetFetchResponse) -> dict[ErrorCode, str]:
        codes: dict[ErrorCode, str] = {}
        for group in reply.groups:
            codes[code_of(group.error_code)] = self._group_id
            for topic in group.topics:
                for partition in topic.partitions:
                    codes[code_of(partition.error_code)] = f"{topic.name}-{partition.partition_index}"
                    if partition.committed_offset >= 0 and not partition.error_code:
                        found = OffsetAndMetadata(
                            partition.committed_offset,
                            partition.metadata or "",
                            partition.committed_leader_epoch,
                        )
                        job.found[TopicPartition(topic.name, partition.partition_index)] = found
        return codes

    def _error(self, code: ErrorCode, where: str) -> SparklogError:
        group = f"group {self._group_id!r}"
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return RebalanceInProgress(
                f"{group} is being rebalanced: poll until that is done, then commit what is still assigned"
            )
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH):
            return CommitFailed(
                f"{group} has given the partitions to others ({code.name}): this member was silent for too "
                f"long. "
                "Raise max.poll.interval.ms or lower max.poll.records, and poll before committing again"
            )
        if code is ErrorCode.FENCED_INSTANCE_ID:
            return FencedInstance(f"{group}: another member is {self._settings.group_instance_id!r} now")
        return (
            group_refused(self._group_id, code)
            if where == self._group_id
            else BrokerError(code, f"{group}, {where}")
        )

    def _job(self, errand: Errand) -> Job | None:
        return next(
            (job for job in self._jobs if job.asked is not None and job.asked[0] == errand.number), None
        )

    def _retry(self, job: Job, now: Micros) -> None:
        wait = backoff_us(
            self._settings.retry_backoff_ms, self._settings.retry_backoff_max_ms, job.attempts, self._entropy
        )
        job.attempts += 1
        job.found = {}
        job.not_before = Micros(now + wait)

    def _end(self, job: Job, error: SparklogError | None) -> None:
        self._jobs.remove(job)
        job.is_done, job.error = True, error
        if job.callback is not None:
            self._done.append(job)
