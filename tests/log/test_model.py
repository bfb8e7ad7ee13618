"""A log compared with a plain list of its batches, after any operations in any order.

To add an operation, write a rule that applies it to `log`, and to `batches`, `log_start_offset` and the state
of transactions. Compaction may remove fewer records than it could, so its rule compares the remaining records
with the previous ones, and the list becomes the remaining ones.
"""

from random import Random
from typing import NamedTuple

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import HealthCheck
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparklog.model import Instant, LeaderEpoch, Micros, Millis, Offset
from sparklog.record.batch import Record, decode_records, iterate_headers
from sparklog.record.compression import Codec
from sparklog.record.control import ControlType, Marker, build_marker
from sparklog_server.log.log_config import LogConfig
from sparklog_server.log.partition_log import OffsetOutOfRange, PartitionLog, RecordsRefused
from sparklog_server.log.segment.txn_index import AbortedTxn
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.compacting import compact
from tests.log.logs import (
    START_MS,
    batch,
    max_timestamp,
    offset_for_timestamp,
    open_log,
    read_all,
    sync,
    truncate,
)
from tests.properties import examples

SLOTS = st.sampled_from([-1, -1, 0, 1])
KEYS = st.sampled_from([b"k", b"k", b"l", b"m"])


class Batch(NamedTuple):
    """A batch in the model: its offsets `[base, end)`, its remaining records, and its producer."""

    base: int
    end: int
    records: list[Record]
    epoch: int
    producer_id: int
    sequence: int
    ends: ControlType | None = None
    is_transactional: bool = False


class LogMachine(RuleBasedStateMachine):
    """The log, its disk, and the model: `batches` in order, `log_start_offset`, the open and the aborted
    transactions.

    Producers have two slots; a slot gets a new id when it is undetermined whether the log knows the old one,
    as after a truncation of its last batch.
    """

    log: PartitionLog
    settings: LogConfig

    @initialize(
        segment_bytes=st.sampled_from([600, 2000, 100_000]),
        index_interval_bytes=st.sampled_from([1, 200, 4096]),
        append_time=st.booleans(),
        compacted=st.booleans(),
    )
    def begin(
        self, segment_bytes: int, index_interval_bytes: int, append_time: bool, compacted: bool
    ) -> None:
        self.disk = SimulatedDisk()
        self.settings = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=index_interval_bytes,
            timestamp_type="LogAppendTime" if append_time else "CreateTime",
            is_compacted=compacted,
            retention_ms=-1,
        )
        self.batches: list[Batch] = []
        self.log_start_offset = 0
        self.end = 0
        self.committed = 0
        self.was_compacted = False
        self.ids = [5, 6]
        self.last: dict[int, Batch] = {}
        self.open: dict[int, int] = {}
        self.aborted: list[AbortedTxn] = []
        self.ever_aborted: list[AbortedTxn] = []
        self.epoch = 0
        self.now = Instant(Micros(0), Millis(START_MS))
        self.checkpoint = 0
        self.log = open_log(self.disk, self.settings)

    # -- the model

    @property
    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in batch.records]

    @property
    def stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def note(self, new: Batch) -> None:
        """A batch was appended."""
        self.batches.append(new)
        self.end = new.end
        producer_id = new.producer_id
        if new.ends is not None:
            first = self.open.pop(producer_id, None)
            if first is not None and new.ends is ControlType.ABORT:
                one = AbortedTxn(producer_id, first, new.base, min(self.open.values(), default=new.end))
                self.aborted.append(one)
                self.ever_aborted.append(one)
            return
        if producer_id >= 0:
            self.last[producer_id] = new
        if new.is_transactional:
            self.open.setdefault(producer_id, new.base)

    def is_known(self, producer_id: int) -> bool:
        """Whether the log must remember the producer's last batch."""
        last = self.last.get(producer_id)
        return last is not None and last.base >= self.log_start_offset

    # -- writing

    @rule(
        count=st.integers(1, 4),
        size=st.integers(0, 80),
        codec=st.sampled_from(list(Codec)),
        slot=SLOTS,
        key=KEYS,
        age_ms=st.integers(0, 60),
        own=st.booleans(),
        in_transaction=st.booleans(),
    )
    def append(
        self,
        count: int,
        size: int,
        codec: Codec,
        slot: int,
        key: bytes,
        age_ms: int,
        own: bool,
        in_transaction: bool,
    ) -> None:
        producer_id = self.ids[slot] if slot >= 0 else -1
        is_transactional = producer_id in self.open or (producer_id >= 0 and in_transaction)
        last, timestamp, value = self.last.get(producer_id), START_MS - age_ms, b"v" * size
        sequence = 0 if producer_id < 0 or last is None else last.sequence + last.end - last.base
        sent = batch(
            count,
            value=value,
            codec=codec,
            producer_id=producer_id,
            sequence=sequence,
            timestamp=timestamp,
            key=key,
            is_transactional=is_transactional,
        )
        if own:
            result = self.log.append_own(bytearray(sent), LeaderEpoch(self.epoch), self.now)
        else:
            result = self.log.append(sent, LeaderEpoch(self.epoch), self.now)
        assert (result.base_offset, result.last_offset, result.is_duplicate) == (
            self.end,
            self.end + count - 1,
            False,
        )
        has_append_time = self.settings.timestamp_type == "LogAppendTime" and not own
        times = [self.now.wall_ms if has_append_time else timestamp + at for at in range(count)]
        records = [
            Record(offset=self.end + at, timestamp=times[at], key=key, value=value, headers=())
            for at in range(count)
        ]
        self.note(
            Batch(
                self.end, self.end + count, records, self.epoch, producer_id, sequence, None, is_transactional
            )
        )

    @rule(seed=st.integers(0, 1 << 30))
    def append_many(self, seed: int) -> None:
        random = Random(seed)
        for _ in range(random.randrange(20)):
            if random.random() < 0.2:
                self.end_transaction(
                    random.randrange(2), random.choice([ControlType.ABORT, ControlType.COMMIT])
                )
            else:
                codec, key = random.choice(list(Codec)), random.choice([b"k", b"l", b"m"])
                self.append(
                    random.randrange(1, 5),
                    random.randrange(80),
                    codec,
                    random.randrange(-1, 2),
                    key,
                    0,
                    True,
                    random.random() < 0.5,
                )

    @rule(slot=st.sampled_from([0, 1]), kind=st.sampled_from([ControlType.ABORT, ControlType.COMMIT]))
    def end_transaction(self, slot: int, kind: ControlType) -> None:
        producer_id = self.ids[slot]
        marker = build_marker(
            Marker(kind, 0), producer_id=producer_id, producer_epoch=0, timestamp_ms=START_MS
        )
        result = self.log.append_own(marker, LeaderEpoch(self.epoch), self.now)
        assert result.base_offset == self.end
        records = decode_records(marker, include_control=True)
        self.note(Batch(self.end, self.end + 1, records, self.epoch, producer_id, -1, kind, True))

    @rule(slot=st.sampled_from([0, 1]))
    def repeat(self, slot: int) -> None:
        producer_id = self.ids[slot]
        if self.is_known(producer_id):
            last = self.last[producer_id]
            again = batch(
                last.end - last.base,
                producer_id=producer_id,
                sequence=last.sequence,
                is_transactional=last.is_transactional,
            )
            result = self.log.append(again, LeaderEpoch(self.epoch), self.now)
            assert (result.is_duplicate, result.base_offset) == (True, last.base)

    @rule(slot=st.sampled_from([0, 1]), gap=st.integers(1, 5))
    def leave_a_gap(self, slot: int, gap: int) -> None:
        producer_id = self.ids[slot]
        if self.is_known(producer_id):
            last = self.last[producer_id]
            ahead = batch(1, producer_id=producer_id, sequence=last.sequence + last.end - last.base + gap)
            with pytest.raises(RecordsRefused):
                self.log.append(ahead, LeaderEpoch(self.epoch), self.now)

    @rule()
    def lead_anew(self) -> None:
        self.epoch += 1

    @rule(ms=st.integers(1, 50))
    def wait(self, ms: int) -> None:
        self.now = Instant(self.now.mono_us, Millis(self.now.wall_ms + ms))

    @rule(segment_bytes=st.sampled_from([600, 2000, 100_000]))
    def reconfigure(self, segment_bytes: int) -> None:
        self.settings = msgspec.structs.replace(self.settings, segment_bytes=segment_bytes)
        self.log.settings = self.settings

    # -- retention and compaction

    @rule(back=st.integers(0, 8))
    def delete_records(self, back: int) -> None:
        target = max(self.stable - back, self.log_start_offset)
        assert self.log.move_log_start(Offset(target)) == (target > self.log_start_offset)
        self.forget_below(target)

    @rule(retention_bytes=st.integers(0, 3000))
    def retire(self, retention_bytes: int) -> None:
        sync(self.disk, self.log)
        self.log.settings = msgspec.structs.replace(self.settings, retention_bytes=retention_bytes)
        job = self.log.retire(Offset(self.stable), self.now)
        self.log.settings = self.settings
        start = self.log.log_start_offset
        assert self.log_start_offset <= start <= min(self.stable, self.log.recovery_point) or job is None
        self.forget_below(start)
        if job is not None:
            remove = job()
            remove()

    def forget_below(self, offset: int) -> None:
        self.log_start_offset = offset
        self.committed = self.end
        self.batches = [kept for kept in self.batches if kept.end > offset]
        self.aborted = [one for one in self.aborted if one.last_offset >= offset]

    @precondition(lambda self: self.settings.is_compacted)
    @rule(later_ms=st.sampled_from([0, 100_000_000]), table_bytes=st.sampled_from([72, 1 << 16]))
    def compact(self, later_ms: int, table_bytes: int) -> None:
        """Only removable segments were removed, and all of them."""
        sync(self.disk, self.log)
        if not compact(self.disk, self.log, now_ms=START_MS + later_ms, table_bytes=table_bytes):
            return
        self.committed, end = self.end, self.log.first_dirty_offset
        self.was_compacted = True
        assert end <= min(self.stable, self.log.recovery_point)
        before = {record.offset: (record, one) for one in self.batches for record in one.records}
        left = self.physical()
        after = {record.offset: record for one in left for record in one.records}
        assert all(
            before[offset][0] == record for offset, record in after.items() if offset >= self.log_start_offset
        )
        counting = [
            (one, record)
            for one in self.batches
            for record in one.records
            if one.ends is None and not self.is_aborted(one)
        ]
        newest = {record.key: record.offset for _, record in counting if record.offset < end}
        for _, record in counting:
            is_superseded = record.offset < end and newest[record.key] > record.offset
            assert (record.offset in after) is not is_superseded, record
        for one in left:
            # An aborted transaction below the end has no records left; its marker may stay.
            assert not (self.is_aborted(one) and one.records and one.base < end)
        found = self.log.aborted_transactions(Offset(self.log_start_offset), Offset(self.end))
        markers = [one.base for one in left if one.ends is ControlType.ABORT and one.records]
        assert [one for one in self.aborted if one in found] == found
        assert {one.last_offset for one in found} <= set(markers)
        self.batches, self.aborted = left, found

    def is_aborted(self, one: Batch) -> bool:
        return one.is_transactional and any(
            aborted.producer_id == one.producer_id and aborted.first_offset <= one.base < aborted.last_offset
            for aborted in self.aborted
        )

    def physical(self) -> list[Batch]:
        """The batches as a reader finds them, with the producers of the model."""
        known = {one.base: one for one in self.batches}
        return [
            known[place.base_offset]._replace(records=decode_records(place.content, include_control=True))
            for place in read_all(self.log)
            if place.next_offset > self.log_start_offset
        ]

    # -- truncating, syncing, opening again

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        # Truncate as followers do: committed records stay, and only those are compacted or deleted.
        offset = data.draw(st.integers(max(self.end - 12, self.committed), self.end))
        truncate(self.log, offset)
        kept = [one for one in self.batches if one.end <= offset]
        if len(kept) < len(self.batches):
            self.replay(kept)
            self.take_new_ids()
        assert self.log.log_end_offset == self.end
        self.checkpoint = min(self.checkpoint, self.log.recovery_point)
        if self.batches:
            assert self.log.latest_epoch == self.batches[-1].epoch
        # New epochs are above all earlier ones, as a controller assigns them.
        self.epoch += 1

    def replay(self, kept: list[Batch]) -> None:
        """The model of a log that ends with `kept`."""
        cut = {one.producer_id for one in self.batches[len(kept) :]}
        self.ids = [producer_id + 2 * (producer_id in cut) for producer_id in self.ids]
        self.end = kept[-1].end if kept else self.log_start_offset
        aborted = [one for one in self.aborted if one.last_offset < self.end]
        ever_aborted = [one for one in self.ever_aborted if one.last_offset < self.end]
        self.batches, self.open = [], {}
        for one in kept:
            self.note(one)
        self.aborted, self.ever_aborted = aborted, ever_aborted

    @rule(is_checkpointed=st.booleans())
    def sync(self, is_checkpointed: bool) -> None:
        sync(self.disk, self.log)
        assert self.log.recovery_point == self.end
        if is_checkpointed:
            self.checkpoint = self.log.recovery_point

    @rule(is_clean=st.booleans())
    def reopen(self, is_clean: bool) -> None:
        if is_clean:
            self.log.close(self.now)
            self.checkpoint = self.end
        else:
            self.disk.restart()
        self.log = open_log(
            self.disk,
            self.settings,
            now=self.now,
            recovery_point=self.checkpoint,
            was_clean=is_clean,
            log_start_offset=self.log_start_offset,
        )
        assert self.log.recovery_point == self.checkpoint
        self.take_new_ids()

    def take_new_ids(self) -> None:
        """Producer state was rebuilt: if only a marker of a producer is left, the log may know only its
        epoch, as in Kafka.
        """
        self.ids = [one + 2 * (one in self.last and not self.is_known(one)) for one in self.ids]

    # -- reading

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), max_bytes=st.sampled_from([1, 150, 400, 100_000]), at_least_one=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, at_least_one: bool) -> None:
        start = data.draw(st.integers(self.log_start_offset, self.end))
        # Limits are ends of batches, as high watermarks and last stable offsets are.
        limit = data.draw(st.sampled_from([batch.end for batch in self.batches][-12:]))
        found = self.log.read(Offset(start), Offset(limit), max_bytes, at_least_one=at_least_one)
        wanted = [batch for batch in self.batches if batch.end > start and batch.end <= limit]
        if found is None:
            assert not wanted or start >= limit or not at_least_one
            return
        content = found.read()
        assert len(content) <= max_bytes or (at_least_one and len(list(iterate_headers(content))) == 1)
        records = decode_records(content, include_control=True)
        expected = [record for batch in wanted for record in batch.records]
        assert records == expected[: len(records)]
        assert len(records) in [
            sum(len(batch.records) for batch in wanted[:count]) for count in range(1, len(wanted) + 1)
        ]

    @rule(beyond=st.integers(1, 100))
    def read_out_of_range(self, beyond: int) -> None:
        with pytest.raises(OffsetOutOfRange):
            self.log.read(Offset(self.end + beyond), Offset(self.end + 200), 1000, at_least_one=True)
        if self.log_start_offset:
            with pytest.raises(OffsetOutOfRange):
                self.log.read(Offset(self.log_start_offset - 1), Offset(self.end), 1000, at_least_one=True)

    @rule(timestamp=st.integers(START_MS - 65, START_MS + 200), limit_back=st.integers(0, 6))
    def look_up_by_time(self, timestamp: int, limit_back: int) -> None:
        limit = max(self.end - limit_back, self.log_start_offset)
        epochs = {record.offset: batch.epoch for batch in self.batches for record in batch.records}
        first = next(
            (
                record
                for record in self.records
                if record.timestamp >= timestamp and self.log_start_offset <= record.offset < limit
            ),
            None,
        )
        expected = None if first is None else (first.timestamp, first.offset, epochs[first.offset])
        assert offset_for_timestamp(self.log, Millis(timestamp), Offset(limit)) == expected

    @rule()
    def look_up_the_latest(self) -> None:
        if self.was_compacted or self.log_start_offset > self.log.segments.all[0].base_offset:
            return  # as in Kafka, the maximum includes removed records of existing segments and batches
        timestamp, offset = max_timestamp(self.log)
        latest = max((record.timestamp for record in self.records), default=-1)
        assert timestamp == latest
        if latest >= 0:
            assert next(record for record in self.records if record.offset == offset).timestamp == latest

    @rule(epoch=st.integers(0, 12))
    def ask_where_an_epoch_ended(self, epoch: int) -> None:
        known = sorted({batch.epoch for batch in self.batches})
        if self.was_compacted:
            return  # the log still knows an epoch whose batches are all removed
        if not known or epoch > known[-1] or epoch < known[0]:
            return
        found = self.log.end_offset_for_epoch(LeaderEpoch(epoch))
        at_or_below = max(other for other in known if other <= epoch)
        assert found.epoch == at_or_below
        assert found.offset == max(batch.end for batch in self.batches if batch.epoch <= epoch)

    @rule(data=st.data())
    def ask_who_aborted(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(self.log_start_offset, max(self.stable, self.log_start_offset)))
        limit = data.draw(st.integers(start, max(self.stable, start)))
        found = self.log.aborted_transactions(Offset(start), Offset(limit))
        overlapping = [
            one for one in self.ever_aborted if one.last_offset >= start and one.first_offset < limit
        ]
        assert [one for one in overlapping if one in found] == found
        assert all(one in found for one in overlapping if one in self.aborted)

    @invariant()
    def both_say_the_same(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.log_start_offset, self.end)
        assert self.log.last_stable_offset(Offset(self.end)) == self.stable

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.read_everything()

    def read_everything(self) -> None:
        """The log has all records of the model and no others."""
        records: list[Record] = []
        at = self.log_start_offset
        while at < self.end:
            found = self.log.read(Offset(at), Offset(self.end), 100_000, at_least_one=True)
            assert found is not None
            content = found.read()
            records += decode_records(content, include_control=True)
            (*_, (_, last)) = iterate_headers(content)  # compaction may have left it empty
            at = last.next_offset
        assert records == self.records


TestLogMatchesAPlainList = LogMachine.TestCase
TestLogMatchesAPlainList.settings = examples(
    100, stateful_step_count=50, suppress_health_check=list(HealthCheck)
)


@pytest.mark.long
@pytest.mark.timeout(1800)
class TestLogMatchesAPlainListForLong(LogMachine.TestCase):
    settings = examples(1000, stateful_step_count=80, suppress_health_check=list(HealthCheck))
