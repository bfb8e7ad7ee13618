"""What a history wrote to one partition, what the log promised, and whether what a start finds agrees."""

from sparklog.kernels import scan
from sparklog.model import ZERO_UUID, Uuid
from sparklog.record.batch import Record, decode_records, read_header
from sparklog.record.control import ControlType
from sparklog_server.log.partition_log import PartitionLog
from sparklog_server.log.producers.ongoing_transactions import marker_of
from sparklog_server.log.producers.producer_state import ProducerState
from sparklog_server.log.segment.txn_index import AbortedTxn
from sparklog_server.simulation.disk import SimulatedDisk
from tests.log.logs import Place, read_all
from tests.log.test_crashes import agrees_with_a_full_scan


class Witness:
    """What was written to one partition, and how much of it was promised.

    `attempt` is a batch whose append did not return; below `kept` everything must still be there, but what
    lies below `start` was deleted: that much of it durably that the log begins at `start_kept` at least.
    `places` has every batch as it was written, though compaction may have taken records of those below
    `compacted`. `is_certain` is false while the partition is being made or removed.
    """

    def __init__(self, topic_id: Uuid, *, is_compacted: bool = False) -> None:
        self.topic_id = topic_id
        self.is_compacted = is_compacted
        self.places: list[Place] = []
        self.attempt: memoryview | bytes | None = None
        self.kept = 0
        self.start = 0
        self.start_kept = 0
        self.compacted = 0
        self.open: dict[int, int] = {}
        self.aborted: list[AbortedTxn] = []
        self.is_certain = False
        self.sequences: dict[int, int] = {}
        self.epoch = 0

    def promised(self, recovery_point: int) -> None:
        """Everything below the recovery point is durable."""
        self.kept = max(
            self.kept, *(place.next_offset for place in self.places if place.next_offset <= recovery_point), 0
        )

    def cut(self, end_offset: int) -> None:
        """The log was truncated."""
        self.places = [place for place in self.places if place.next_offset <= end_offset]
        self.kept = min(self.kept, end_offset)
        self.know()

    def know(self) -> None:
        """The next sequence of each producer, and the transactions, by the batches that were written."""
        self.sequences, self.open, self.aborted = {}, {}, []
        for place in self.places:
            self.note(place)

    def note(self, place: Place) -> None:
        """One more batch."""
        header = read_header(place.content)
        self.epoch = max(self.epoch, header.leader_epoch)
        producer_id = header.producer_id
        if header.is_control:
            first = self.open.pop(producer_id, None)
            marker = marker_of(place.content)
            assert marker is not None
            if first is not None and marker.type is ControlType.ABORT:
                stable = min(self.open.values(), default=place.next_offset)
                self.aborted.append(AbortedTxn(producer_id, first, place.base_offset, stable))
        elif producer_id >= 0:
            self.sequences[producer_id] = header.last_sequence + 1
            if header.is_transactional:
                self.open.setdefault(producer_id, place.base_offset)

    def next_sequence(self, log: PartitionLog, producer_id: int) -> int:
        """What a producer sends next. Recovery knows no sequences of one whose records were deleted, as in
        Kafka: it has to begin anew.
        """
        headers = (read_header(place.content) for place in self.places if place.next_offset > self.start)
        if any(header.producer_id == producer_id and not header.is_control for header in headers):
            return self.sequences.get(producer_id, 0)
        known = log.producers.producers.get(producer_id)
        return known.batches[-1][1] + 1 if known is not None and known.batches else 0

    def agrees(self, log: PartitionLog) -> None:
        """Whether an opened log holds what it must and nothing else; from then on what it holds is what
        was written.
        """
        found = read_all(log)
        if self.attempt is not None and log.log_end_offset > (
            self.places[-1].next_offset if self.places else 0
        ):
            header = read_header(self.attempt)
            self.places.append(Place(header.base_offset, header.next_offset, bytes(self.attempt)))
        start, end = log.log_start_offset, log.log_end_offset
        assert self.start_kept <= start <= self.start, "the log starts where nobody said"
        assert end >= self.kept, f"what was promised in [{end}, {self.kept}) is gone"
        assert log.recovery_point <= end
        assert end in (0, start, *(place.next_offset for place in self.places)), (
            "ends with no batch that was written"
        )
        self.places = [place for place in self.places if place.next_offset <= end]
        written = [place for place in self.places if place.next_offset > start]
        if self.is_compacted:
            self._compacted_agrees(found, written)
        else:
            assert found == written, "not what was written"
        ends = [start, *(place.next_offset for place in found)]
        assert end == ends[-1]
        if found and self.kept:
            assert log.topic_id == self.topic_id
        assert log.topic_id in (self.topic_id, ZERO_UUID)
        agrees_with_a_full_scan(log, found, by_time=not self.is_compacted)
        self.start, self.attempt = start, None
        self.know()
        self._transactions_agree(log, found)

    def _compacted_agrees(self, found: list[Place], written: list[Place]) -> None:
        """Nothing is there that was not written; what is missing has a successor, or was aborted."""
        before, after = _records_of(written), _records_of(found)
        assert all(before.get(offset) == record for offset, record in after.items()), (
            "a record that nobody wrote"
        )
        aborted = {
            record.offset
            for place in written
            for one in self.aborted_in(written)
            if one.first_offset <= place.base_offset < one.last_offset
            and read_header(place.content).producer_id == one.producer_id
            for record in decode_records(place.content)
        }
        newest = {
            record.key: offset
            for offset, record in before.items()
            if offset < self.compacted and offset not in aborted
        }
        for offset, record in before.items():
            is_gone = offset not in after
            assert not is_gone or offset in aborted or newest.get(record.key, -1) > offset, (
                f"{offset} is gone, though nothing follows it"
            )
            assert not is_gone or offset < self.compacted, f"{offset} is gone, and nobody compacted so far"

    def aborted_in(self, written: list[Place]) -> list[AbortedTxn]:
        """Who was aborted, were these all."""
        other = Witness(self.topic_id)
        for place in written:
            other.note(place)
        return other.aborted

    def _transactions_agree(self, log: PartitionLog, found: list[Place]) -> None:
        end = log.log_end_offset
        told = log.aborted_transactions(log.log_start_offset, end)
        left = [(place.base_offset, read_header(place.content)) for place in found]
        due = [
            one
            for one in self.aborted
            if any(
                one.first_offset <= base < one.last_offset and header.producer_id == one.producer_id
                for base, header in left
            )
        ]
        written = {one.last_offset: one for one in self.aborted}
        for one in told:
            # A replay of what compaction, retention or DeleteRecords has left of a transaction knows of no
            # beginning that is gone, nor does Kafka's: a reader meets no record of it there.
            whole = written[one.last_offset]
            assert one._replace(first_offset=whole.first_offset) == whole
            gone = range(whole.first_offset, one.first_offset)
            assert not [
                base for base, header in left if base in gone and header.producer_id == one.producer_id
            ]
        assert [one.last_offset for one in told] == sorted(one.last_offset for one in told)
        assert all(one.last_offset in {other.last_offset for other in told} for one in due)
        assert log.last_stable_offset(end) == max(min(self.open.values(), default=end), self.start)

    def producers_agree(self, disk: SimulatedDisk, directory: str) -> None:
        """Whether the snapshot of a clean stop says what every batch of the log would."""
        end_offset = self.places[-1].next_offset if self.places else 0
        content = disk.read(f"{directory}/{end_offset:020d}.snapshot")
        if end_offset == 0:
            return
        assert content is not None, "no snapshot at the end of the log"
        told, replayed = known(content), known(self._replayed())
        if self.start or self.is_compacted:
            # Whose batches were deleted may be forgotten.
            last = {
                read_header(place.content).producer_id: place.base_offset
                for place in self.places
                if not _is_control(place)
            }
            told, replayed = (
                {
                    key: value
                    for key, value in some.items()
                    if last.get(key, -1) >= self.start and not self.is_compacted
                }
                for some in (told, replayed)
            )
        assert told == replayed

    def _replayed(self) -> bytes:
        state = ProducerState()
        for place in self.places:
            for _, header in scan.headers(memoryview(place.content), True):
                if header.producer_id >= 0:
                    state.appended(header, header.base_offset, header.max_timestamp, header.max_timestamp)
        return state.render()


def _is_control(place: Place) -> bool:
    return read_header(place.content).is_control


def _records_of(places: list[Place]) -> dict[int, Record]:
    """The records of data, by offset."""
    return {record.offset: record for place in places for record in decode_records(place.content)}


def known(snapshot: bytes) -> dict[int, tuple[int, list[object]]]:
    """What a snapshot says of each producer: epoch, sequences and offsets of its last batch. No batch
    tells when it was appended.
    """
    producers = ProducerState.parse(snapshot).producers
    return {
        key: (value.epoch, [batch[:4] for batch in value.batches[-1:]]) for key, value in producers.items()
    }
