"""A log beside a plain list of its records: whatever is done in whatever order, both say the same.

To add an operation (retention, DeleteRecords, compaction): a rule that does it to `log`, and to `records` and `log_start_offset`.
"""

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparklog.model import Instant, LeaderEpoch, Micros, Millis, Offset
from sparklog.record.batch import Record, decode_records, iterate_headers
from sparklog.record.compression import Codec
from sparklog_server.log.partition_log import OffsetOutOfRange, PartitionLog, RecordsRefused
from sparklog_server.log.settings import LogSettings
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.logs import START_MS, batch, open_log, sync

PRODUCERS = st.sampled_from([-1, -1, 5, 6])


class Batch:
    """What the model knows of a batch: its records, and who sent it."""

    def __init__(self, records: list[Record], epoch: int, producer_id: int, sequence: int) -> None:
        self.records = records
        self.epoch = epoch
        self.producer_id = producer_id
        self.sequence = sequence

    @property
    def end(self) -> int:
        return self.records[-1].offset + 1


class LogMachine(RuleBasedStateMachine):
    """The log, its disk, and the model: `batches` in order; `log_start_offset` is moved by what deletes."""

    log: PartitionLog
    settings: LogSettings

    @initialize(
        segment_bytes=st.sampled_from([600, 2000, 100_000]),
        index_interval_bytes=st.sampled_from([1, 200, 4096]),
        append_time=st.booleans(),
    )
    def begin(self, segment_bytes: int, index_interval_bytes: int, append_time: bool) -> None:
        self.disk = SimulatedDisk()
        self.settings = LogSettings(
            segment_bytes=segment_bytes,
            index_interval_bytes=index_interval_bytes,
            timestamp_type="LogAppendTime" if append_time else "CreateTime",
        )
        self.batches: list[Batch] = []
        self.log_start_offset = 0
        self.epoch = 0
        self.now = Instant(Micros(0), Millis(START_MS))
        self.checkpoint = 0
        self.log = open_log(self.disk, self.settings)

    # -- the model

    @property
    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in batch.records]

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else self.log_start_offset

    def last_of(self, producer_id: int) -> Batch | None:
        return next((batch for batch in reversed(self.batches) if batch.producer_id == producer_id), None)

    # -- writing

    @rule(
        count=st.integers(1, 4),
        size=st.integers(0, 80),
        codec=st.sampled_from(list(Codec)),
        producer_id=PRODUCERS,
        age_ms=st.integers(0, 60),
        own=st.booleans(),
    )
    def append(self, count: int, size: int, codec: Codec, producer_id: int, age_ms: int, own: bool) -> None:
        last = self.last_of(producer_id)
        sequence = 0 if producer_id < 0 or last is None else last.sequence + len(last.records)
        self._append(count, b"v" * size, codec, producer_id, sequence, START_MS - age_ms, own=own)

    def _append(self, count: int, value: bytes, codec: Codec, producer_id: int, sequence: int, timestamp: int, *, own: bool) -> None:
        sent = batch(count, value=value, codec=codec, producer_id=producer_id, sequence=sequence, timestamp=timestamp)
        if own:
            result = self.log.append_own(bytearray(sent), LeaderEpoch(self.epoch), self.now)
        else:
            result = self.log.append(sent, LeaderEpoch(self.epoch), self.now)
        assert (result.base_offset, result.last_offset, result.is_duplicate) == (self.end, self.end + count - 1, False)
        has_append_time = self.settings.timestamp_type == "LogAppendTime" and not own
        times = [self.now.wall_ms if has_append_time else timestamp + at for at in range(count)]
        records = [Record(offset=self.end + at, timestamp=times[at], key=b"k", value=value, headers=()) for at in range(count)]
        self.batches.append(Batch(records, self.epoch, producer_id, sequence))

    @rule(producer_id=st.sampled_from([5, 6]))
    def repeat(self, producer_id: int) -> None:
        last = self.last_of(producer_id)
        if last is not None:
            again = batch(len(last.records), producer_id=producer_id, sequence=last.sequence)
            result = self.log.append(again, LeaderEpoch(self.epoch), self.now)
            assert (result.is_duplicate, result.base_offset) == (True, last.records[0].offset)

    @rule(producer_id=st.sampled_from([5, 6]), gap=st.integers(1, 5))
    def leave_a_gap(self, producer_id: int, gap: int) -> None:
        last = self.last_of(producer_id)
        if last is not None:
            ahead = batch(1, producer_id=producer_id, sequence=last.sequence + len(last.records) + gap)
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
        self.settings = LogSettings(
            segment_bytes=segment_bytes,
            index_interval_bytes=self.settings.index_interval_bytes,
            timestamp_type=self.settings.timestamp_type,
        )
        self.log.settings = self.settings

    # -- cutting, syncing, opening again

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(max(self.end - 12, self.log_start_offset), self.end))
        self.log.truncate_to(Offset(offset))
        self.batches = [kept for kept in self.batches if kept.end <= offset]
        self.checkpoint = min(self.checkpoint, self.log.recovery_point)
        if self.batches:
            assert self.log.latest_epoch == self.batches[-1].epoch
        # Epochs begin anew above every one that was seen, as a controller hands them out.
        self.epoch += 1

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

    # -- reading

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), max_bytes=st.sampled_from([1, 150, 400, 100_000]), at_least_one=st.booleans())
    def read(self, data: st.DataObject, max_bytes: int, at_least_one: bool) -> None:
        start = data.draw(st.integers(self.log_start_offset, self.end))
        # Limits are where batches end, as high watermarks and last stable offsets are.
        limit = data.draw(st.sampled_from([batch.end for batch in self.batches][-12:]))
        found = self.log.read(Offset(start), Offset(limit), max_bytes, at_least_one=at_least_one)
        wanted = [batch for batch in self.batches if batch.end > start and batch.end <= limit]
        if found is None:
            assert not wanted or start >= limit or not at_least_one
            return
        content = found.read()
        assert len(content) <= max_bytes or (at_least_one and len(list(iterate_headers(content))) == 1)
        records = decode_records(content)
        expected = [record for batch in wanted for record in batch.records]
        assert records == expected[: len(records)]
        assert len(records) in [sum(len(batch.records) for batch in wanted[:count]) for count in range(1, len(wanted) + 1)]

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
        first = next((record for record in self.records if record.timestamp >= timestamp and record.offset < limit), None)
        expected = None if first is None else (first.timestamp, first.offset, epochs[first.offset])
        assert self.log.offset_for_timestamp(Millis(timestamp), Offset(limit)) == expected

    @rule()
    def look_up_the_latest(self) -> None:
        timestamp, offset = self.log.max_timestamp()
        latest = max((record.timestamp for record in self.records), default=-1)
        assert timestamp == latest
        if latest >= 0:
            assert next(record for record in self.records if record.offset == offset).timestamp == latest

    @rule(epoch=st.integers(0, 12))
    def ask_where_an_epoch_ended(self, epoch: int) -> None:
        known = sorted({batch.epoch for batch in self.batches})
        if not known or epoch > known[-1] or epoch < known[0]:
            return
        found = self.log.end_offset_for_epoch(LeaderEpoch(epoch))
        at_or_below = max(other for other in known if other <= epoch)
        assert found.epoch == at_or_below
        assert found.offset == max(batch.end for batch in self.batches if batch.epoch <= epoch)

    @invariant()
    def both_say_the_same(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.log_start_offset, self.end)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.read_everything()

    def read_everything(self) -> None:
        """Every record, and nothing else."""
        records: list[Record] = []
        while (at := records[-1].offset + 1 if records else self.log_start_offset) < self.end:
            found = self.log.read(Offset(at), Offset(self.end), 100_000, at_least_one=True)
            assert found is not None
            records += decode_records(found.read())
        assert records == self.records


TestLogMatchesAPlainList = LogMachine.TestCase
TestLogMatchesAPlainList.settings = settings(
    max_examples=100, stateful_step_count=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@pytest.mark.long
@pytest.mark.timeout(900)
class TestLogMatchesAPlainListForLong(LogMachine.TestCase):
    settings = settings(max_examples=3000, stateful_step_count=80, deadline=None, suppress_health_check=list(HealthCheck))
