"""Anomalies in a history of transactions, also with crashes; pure, so that they apply to simulated and real
brokers.

    duplicate            a value at two offsets
    inconsistent         two values at one offset, or a value not at its acknowledged offset
    lost                 a committed record is missing at the end
    torn                 of a transaction with unknown outcome, only some records are there
    aborted-read  (G1a)  a read_committed reader got an aborted record
    early-read    (G1b)  a read_committed reader got a record before its producer requested the commit
    skipped              a reader passed over a committed record
    vanished             a reader got a record that is missing at the end
    non-monotonic        a reader's offsets or positions go back
    unstable-read        a read_committed reader read beyond an open transaction
    write-cycle   (G0)   a transaction that ended earlier is written behind one that began later, or the
                         writes of one transaction are out of order
    zombie               an incarnation committed after a younger one had its producer id
    hanging              all transactions have ended, and read_committed does not reach the end of a partition
    aborted-offset, early-offset, stale-offset, unstable-offset, lost-offset, torn-offset
                         the same for offsets committed by groups
    twice-consumed       two committed transactions consumed the same records of a partition for a group, or
                         left records out between them

Kafka does not isolate the writes of concurrent transactions: their records interleave in either order, so a
write cycle among them is not an anomaly.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from sparklog.model import TopicPartition
from sparklog_server.simulation.history import (
    Commit,
    History,
    Initialized,
    OffsetRead,
    Outcome,
    Poll,
    Transaction,
)

Place = tuple[TopicPartition, int]
_FOREVER = 1 << 62


class Anomaly(NamedTuple):
    """One anomaly of a history."""

    kind: str
    said: str


def check(history: History) -> list[Anomaly]:
    """Every anomaly of a history, by kind and then in the order found; empty if there is none."""
    facts = _Facts(history)
    judges: tuple[Callable[[_Facts], Iterator[Anomaly]], ...] = (
        _places,
        _ends,
        _committed_reads,
        _readers,
        _whole_ranges,
        _stable_ends,
        _order_of_writes,
        _zombies,
        _offsets_read,
        _offsets_in_the_end,
        _consumed_once,
    )
    return [anomaly for judge in judges for anomaly in judge(facts)]


class _Facts:
    """The history and its derived facts: the writer of each value, the final log, and the outcome of unknown
    transactions.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self.by_number = {txn.number: txn for txn in history.transactions}
        self.writer = {write.value: (txn, write) for txn in history.transactions for write in txn.writes}
        self.committed_at = {
            (poll.partition, offset): value
            for poll in history.final_committed
            for offset, value in poll.records
        }
        self.all_at = {
            (poll.partition, offset): value for poll in history.final_all for offset, value in poll.records
        }
        self.place = {value: place for place, value in self.all_at.items()}
        self.committed_values = dict.fromkeys(self.committed_at.values())
        reads = history.offset_reads + history.final_offsets
        self.numbers_read = {read.found[1]: None for read in reads if read.found is not None}
        self.initialized: dict[str, list[Initialized]] = defaultdict(list)
        for one in history.initialized:
            self.initialized[one.transactional_id].append(one)

    def is_committed(self, txn: Transaction) -> bool:
        """Whether it was committed; an unknown outcome follows from its records, or else its offsets."""
        if txn.outcome is not Outcome.UNKNOWN:
            return txn.outcome is Outcome.COMMITTED
        if txn.writes:
            return any(write.value in self.committed_values for write in txn.writes)
        return txn.number in self.numbers_read

    def open_until(self, txn: Transaction) -> int:
        """The time until which it was certainly open: no request for its end or for its transactional id, no
        timeout, and no step of a wall clock.
        """
        stepped_us = self.history.stepped_us
        stepped = [] if stepped_us is None else [max(stepped_us, txn.begun_us)]
        fences = [
            max(one.asked_us, txn.begun_us)
            for one in self.initialized[txn.transactional_id]
            if one.is_doubtful or one.told_us is None or one.told_us > txn.begun_us
        ]
        return min([txn.ended_us or _FOREVER, txn.begun_us + txn.timeout_us, *stepped, *fences])


def _all_polls(history: History) -> list[Poll]:
    return history.polls + history.final_committed + history.final_all


# -- records


def _places(facts: _Facts) -> Iterator[Anomaly]:
    """One value at each offset, one offset for each value."""
    at: dict[Place, int] = {}
    of: dict[int, Place] = {}
    seen = [
        ((write.partition, write.offset), write.value)
        for _, write in facts.writer.values()
        if write.offset is not None
    ]
    seen += [
        ((poll.partition, offset), value)
        for poll in _all_polls(facts.history)
        for offset, value in poll.records
    ]
    for place, value in seen:
        if at.setdefault(place, value) != value:
            yield Anomaly("inconsistent", f"{_said(place)} holds {at[place]} and {value}")
        if of.setdefault(value, place) != place:
            yield Anomaly("duplicate", f"{value} is at {_said(of[value])} and at {_said(place)}")
        if value not in facts.writer:
            yield Anomaly("inconsistent", f"{_said(place)} holds {value}, which no producer wrote")


def _ends(facts: _Facts) -> Iterator[Anomaly]:
    """Committed records are all in the final log: a client commits only after all are acknowledged."""
    for txn in facts.history.transactions:
        if facts.is_committed(txn):
            for write in txn.writes:
                if write.value not in facts.committed_values:
                    kind = "lost" if txn.outcome is Outcome.COMMITTED else "torn"
                    yield Anomaly(kind, f"{txn} is there without {write}")


def _committed_reads(facts: _Facts) -> Iterator[Anomaly]:
    """A read_committed reader gets no aborted record, and no record before its producer requested the
    commit.
    """
    for poll in facts.history.polls + facts.history.final_committed:
        if not poll.is_committed:
            continue
        for offset, value in poll.records:
            if value not in facts.writer:
                continue
            txn, _ = facts.writer[value]
            where = f"{poll.reader} read {value} at {_said((poll.partition, offset))} of {txn}"
            if txn.outcome is Outcome.ABORTED:
                yield Anomaly("aborted-read", where)
            elif txn.commit_us is None or txn.commit_us > poll.told_us:
                yield Anomaly("early-read", where)


def _readers(facts: _Facts) -> Iterator[Anomaly]:
    """A reader continues at its position, and offsets rise."""
    stands: dict[tuple[str, TopicPartition], int] = {}
    for poll in facts.history.polls:
        offsets = [offset for offset, _ in poll.records]
        if offsets != sorted(set(offsets)) or (
            offsets and not poll.start <= offsets[0] <= offsets[-1] < poll.limit
        ):
            yield Anomaly(
                "non-monotonic",
                f"{poll.reader} of {poll.partition} [{poll.start}, {poll.limit}) got offsets {offsets}",
            )
        before = stands.get((poll.reader, poll.partition), poll.start)
        if poll.start != before or poll.limit < poll.start:
            yield Anomaly(
                "non-monotonic",
                f"{poll.reader} of {poll.partition} stood at {before} and read [{poll.start}, {poll.limit})",
            )
        stands[poll.reader, poll.partition] = poll.limit


def _whole_ranges(facts: _Facts) -> Iterator[Anomaly]:
    """A reader's records of a range equal those of the final log."""
    for is_committed, final in ((True, facts.committed_at), (False, facts.all_at)):
        by_partition: dict[TopicPartition, dict[int, int]] = defaultdict(dict)
        for (partition, offset), value in final.items():
            by_partition[partition][offset] = value
        for poll in facts.history.polls:
            if poll.is_committed is not is_committed:
                continue
            there = by_partition[poll.partition]
            seen = dict(poll.records)
            for offset in range(poll.start, poll.limit):
                if offset in there and offset not in seen:
                    yield Anomaly(
                        "skipped",
                        f"{poll.reader} passed over {there[offset]} at {_said((poll.partition, offset))}",
                    )
            for offset in seen:
                if offset not in there:
                    yield Anomaly(
                        "vanished", f"{poll.reader} saw {seen[offset]} at {_said((poll.partition, offset))}"
                    )


def _stable_ends(facts: _Facts) -> Iterator[Anomaly]:
    """A read_committed reader never passes the first record of an open transaction, and reaches the end when
    no transaction is open.
    """
    spans = []
    for txn in facts.history.transactions:
        for write in txn.writes:
            if (
                write.offset is not None
                and write.acked_us is not None
                and write.acked_us < facts.open_until(txn)
            ):
                spans.append((write.partition, write.offset, write.acked_us, facts.open_until(txn), txn))
    for poll in facts.history.polls:
        if poll.is_committed:
            for partition, offset, since_us, until_us, txn in spans:
                if (
                    partition == poll.partition
                    and since_us < poll.asked_us
                    and poll.told_us < until_us
                    and offset < poll.limit
                ):
                    yield Anomaly(
                        "unstable-read",
                        f"{poll.reader} read {partition} up to {poll.limit}, beyond {offset} of {txn}, which "
                        f"is open",
                    )
    ends = {poll.partition: poll.limit for poll in facts.history.final_all}
    for poll in facts.history.final_committed:
        if poll.limit != ends.get(poll.partition, poll.limit):
            yield Anomaly(
                "hanging", f"{poll.partition} ends at {ends[poll.partition]}, read-committed at {poll.limit}"
            )


def _order_of_writes(facts: _Facts) -> Iterator[Anomaly]:
    """Offsets follow time: within a transaction, and between one that ended before another began."""
    rows: dict[TopicPartition, list[tuple[int, Transaction]]] = defaultdict(list)
    for txn in facts.history.transactions:
        last: dict[TopicPartition, int] = {}
        for write in txn.writes:
            place = facts.place.get(write.value)
            if place is None:
                continue
            if last.get(place[0], -1) > place[1] and write.acked_us is not None:
                yield Anomaly("write-cycle", f"{txn}: {write} has a lower offset than an earlier write")
            last[place[0]] = place[1]
            rows[place[0]].append((place[1], txn))
    for partition in sorted(rows):
        begun_max_us, latest = -1, None
        for offset, txn in sorted(rows[partition], key=lambda row: row[0]):
            if latest is not None and txn.told_us is not None and txn.told_us < begun_max_us:
                yield Anomaly(
                    "write-cycle",
                    f"{txn} was over before {latest} began, and wrote {_said((partition, offset))} behind it",
                )
            if txn.begun_us > begun_max_us:
                begun_max_us, latest = txn.begun_us, txn


def _zombies(facts: _Facts) -> Iterator[Anomaly]:
    """An incarnation that requests a commit after a younger one received its producer id is fenced."""
    for txn in facts.history.transactions:
        if txn.commit_us is None or not facts.is_committed(txn):
            continue
        first = [one for one in facts.initialized[txn.transactional_id] if one.is_first]
        told = {one.incarnation: one.told_us for one in first if one.told_us is not None}
        for one in first:
            is_older = told.get(txn.incarnation, _FOREVER) < one.asked_us
            if is_older and one.told_us is not None and one.told_us < txn.commit_us:
                yield Anomaly(
                    "zombie", f"{txn} was committed after incarnation {one.incarnation} had taken its place"
                )


# -- offsets of groups


def _offsets_read(facts: _Facts) -> Iterator[Anomaly]:
    """An offset that a group reads is committed, the newest, and not returned while it is undecided."""
    owners: dict[tuple[str, TopicPartition], list[tuple[Transaction, Commit]]] = defaultdict(list)
    for txn in facts.history.transactions:
        for commit in txn.commits:
            owners[commit.group, commit.partition].append((txn, commit))
    for read in facts.history.offset_reads + facts.history.final_offsets:
        if not read.is_unstable:
            yield from _offset_found(facts, read)
            if read.is_stable:
                yield from _offset_missed(facts, read, owners[read.group, read.partition])


def _offset_found(facts: _Facts, read: OffsetRead) -> Iterator[Anomaly]:
    if read.found is None:
        return
    offset, number = read.found
    txn = facts.by_number.get(number)
    if txn is None or not any(
        (one.group, one.partition, one.limit) == (read.group, read.partition, offset) for one in txn.commits
    ):
        yield Anomaly("inconsistent", f"{read} is of {txn or number}, which never said so")
    elif not facts.is_committed(txn):
        yield Anomaly("aborted-offset", f"{read} is of {txn}")
    elif txn.commit_us is None or txn.commit_us > read.told_us:
        yield Anomaly("early-offset", f"{read} is of {txn}")


def _offset_missed(
    facts: _Facts, read: OffsetRead, owners: list[tuple[Transaction, Commit]]
) -> Iterator[Anomaly]:
    """A reader of stable offsets gets every offset committed before, and none while one is pending."""
    found = -1 if read.found is None else read.found[0]
    for txn, commit in owners:
        if (
            facts.is_committed(txn)
            and txn.told_us is not None
            and txn.told_us < read.asked_us
            and found < commit.limit
        ):
            yield Anomaly("stale-offset", f"{read} came after {txn} had committed {commit.limit}")
        if (
            commit.acked_us is not None
            and commit.acked_us < read.asked_us
            and read.told_us < facts.open_until(txn)
        ):
            yield Anomaly("unstable-offset", f"{read} was told while {txn} was open")


def _offsets_in_the_end(facts: _Facts) -> Iterator[Anomaly]:
    """A group's offsets are those of its last committed transaction, and are committed atomically with its
    records.
    """
    last: dict[tuple[str, TopicPartition], tuple[int, Transaction]] = {}
    for txn in facts.history.transactions:
        for commit in txn.commits if facts.is_committed(txn) else ():
            key = commit.group, commit.partition
            if key not in last or last[key][0] < commit.limit:
                last[key] = commit.limit, txn
    for read in facts.history.final_offsets:
        if read.is_unstable:
            yield Anomaly("hanging", f"{read}: no coordinator completes it")
            continue
        limit, newest = last.get((read.group, read.partition), (-1, None))
        if newest is not None and (read.found is None or read.found[0] < limit):
            kind = "lost-offset" if newest.outcome is Outcome.COMMITTED else "torn-offset"
            yield Anomaly(kind, f"{read}, though {newest} committed {limit}")


def _consumed_once(facts: _Facts) -> Iterator[Anomaly]:
    """The ranges that a group's committed transactions consumed lie side by side."""
    ranges: dict[tuple[str, TopicPartition], list[tuple[int, int, Transaction]]] = defaultdict(list)
    for txn in facts.history.transactions:
        if facts.is_committed(txn):
            for commit in txn.commits:
                ranges[commit.group, commit.partition].append((commit.start, commit.limit, txn))
    for (group, partition), consumed in ranges.items():
        at = 0
        for start, limit, txn in sorted(consumed, key=lambda one: one[:2]):
            if start != at:
                yield Anomaly(
                    "twice-consumed",
                    f"{txn} consumed {partition} [{start}, {limit}) for {group}, which stood at {at}",
                )
            at = limit


def _said(place: Place) -> str:
    return f"{place[0]}@{place[1]}"
