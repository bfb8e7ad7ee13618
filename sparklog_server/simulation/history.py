"""Requests of clients and their responses, as in Jepsen's Kafka workload; `checkers` looks for anomalies in
them.

Every record has a unique value, and every offset committed within a transaction names the transaction in its
metadata, so each read identifies its writer. Times are microseconds of one clock. The result of an unanswered
request stays None: it may or may not have taken effect.
"""

from dataclasses import dataclass, field
from enum import Enum

from sparklog.model import TopicPartition


class Outcome(Enum):
    """The outcome of a transaction as its client knows it."""

    COMMITTED = "committed"
    ABORTED = "aborted"  # no commit was requested, or it was refused
    UNKNOWN = "unknown"  # a commit was requested, and its response lost


@dataclass(slots=True)
class Write:
    """One record of a transaction; `offset` and `acked_us` where it was acknowledged."""

    partition: TopicPartition
    value: int
    offset: int | None = None
    acked_us: int | None = None


@dataclass(slots=True)
class Commit:
    """Positions `[start, limit)` of a group in one partition that the transaction has consumed; `acked_us`
    where that was acknowledged.
    """

    group: str
    partition: TopicPartition
    start: int
    limit: int
    acked_us: int | None = None


@dataclass(slots=True)
class Transaction:
    """One transaction of an incarnation of a transactional id.

    The coordinator may abort it `timeout_us` after it began. `commit_us` is the time of the first request to
    commit, `ended_us` of the first request to end it, `told_us` of the response.
    """

    number: int
    transactional_id: str
    incarnation: int
    begun_us: int
    timeout_us: int
    writes: list[Write] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    outcome: Outcome = Outcome.ABORTED
    commit_us: int | None = None
    ended_us: int | None = None
    told_us: int | None = None

    def __str__(self) -> str:
        return f"transaction {self.number} ({self.transactional_id}#{self.incarnation}, {self.outcome.value})"


@dataclass(frozen=True, slots=True)
class Initialized:
    """The request of an incarnation for its producer id; every earlier incarnation is fenced from `told_us`
    on.

    It may fence from `asked_us` on; at any later time if `is_doubtful`, since an unanswered request may
    arrive late. One that is not `is_first` raised its own epoch: even if it is already fenced, it ends the
    open transaction of a younger one, as in Kafka.
    """

    transactional_id: str
    incarnation: int
    asked_us: int
    told_us: int | None
    is_doubtful: bool = False
    is_first: bool = True


@dataclass(frozen=True, slots=True)
class Poll:
    """Offsets `[start, limit)` of a partition, and the (offset, value) pairs that a reader got there; a
    reader continues at its position.
    """

    reader: str
    partition: TopicPartition
    is_committed: bool
    start: int
    limit: int
    records: tuple[tuple[int, int], ...]
    asked_us: int
    told_us: int


@dataclass(frozen=True, slots=True)
class OffsetRead:
    """A group's committed offset: (offset, number of the transaction), None without one; `is_unstable` while
    it is undecided.
    """

    group: str
    partition: TopicPartition
    is_stable: bool
    is_unstable: bool
    found: tuple[int, int] | None
    asked_us: int
    told_us: int

    def __str__(self) -> str:
        said = (
            "unstable"
            if self.is_unstable
            else "none"
            if self.found is None
            else f"{self.found[0]} of transaction {self.found[1]}"
        )
        return (
            f"{'stable ' if self.is_stable else ''}offset of {self.group} in {self.partition}, {said}, told "
            f"at {self.told_us} µs"
        )


@dataclass(slots=True)
class History:
    """The whole history. `final` are polls and offsets read at the end, with no client active, from the
    beginning of each partition to its end.
    """

    transactions: list[Transaction] = field(default_factory=list)
    initialized: list[Initialized] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    offset_reads: list[OffsetRead] = field(default_factory=list)
    final_committed: list[Poll] = field(default_factory=list)
    final_all: list[Poll] = field(default_factory=list)
    final_offsets: list[OffsetRead] = field(default_factory=list)
    stepped_us: int | None = None
    """When a wall clock stepped for the first time; from then on a coordinator may see the time-out of any
    transaction, whose times are those of wall clocks.
    """
    events: list[tuple[int, str]] = field(default_factory=list)
    """Events of the broker: (microseconds, text)."""

    def told(self) -> list[str]:
        """One line for each event, in the order of time."""
        lines = [(at_us, f"broker: {words}") for at_us, words in self.events]
        for one in self.initialized:
            lines.append(
                (one.told_us or one.asked_us, f"{one.transactional_id}#{one.incarnation} is initialized")
            )
        for txn in self.transactions:
            lines.append((txn.begun_us, f"{txn} begins"))
            for write in txn.writes:
                lines.append(
                    (
                        write.acked_us or txn.begun_us,
                        f"{txn} writes {write.value} to {write.partition} at {write.offset}",
                    )
                )
            for commit in txn.commits:
                at_us = commit.acked_us or txn.begun_us
                lines.append(
                    (
                        at_us,
                        f"{txn} consumes {commit.partition} [{commit.start}, {commit.limit}) for "
                        f"{commit.group}",
                    )
                )
            if txn.ended_us is not None:
                lines.append(
                    (txn.ended_us, f"{txn} asks for its {'end' if txn.commit_us is None else 'commit'}")
                )
            if txn.told_us is not None:
                lines.append((txn.told_us, f"{txn} is told"))
        for poll in self.polls + self.final_committed + self.final_all:
            kind = "committed" if poll.is_committed else "all"
            where = f"{poll.partition} [{poll.start}, {poll.limit}), {kind}"
            lines.append((poll.told_us, f"{poll.reader} reads {where}: {list(poll.records)}"))
        for read in self.offset_reads + self.final_offsets:
            lines.append((read.told_us, str(read)))
        return [f"{at_us / 1e6:12.6f} {words}" for at_us, words in sorted(lines, key=lambda line: line[0])]
