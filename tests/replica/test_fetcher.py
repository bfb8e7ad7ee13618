"""The fetches of the partitions that one leader has: which responses count, and what they prove."""

import pytest

from sparklog.model import Instant, LeaderEpoch, Micros, NodeId, Offset, Uuid
from sparklog.record.batch import build_batch
from sparklog.wire.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from sparklog_server.replica.fetcher import Fetcher, FetchLimits, SentFetch
from sparklog_server.replica.follower import Follower
from sparklog_server.replica.throttle import Throttle
from tests.log.logs import EPOCH, NOW, T0, TOPIC_ID
from tests.replica.test_cutting import World

LEADER, SESSION, BACKOFF_US = NodeId(2), 7, 1_000_000
DIVERGES = PartitionData(diverging_epoch=EpochEndOffset(epoch=EPOCH, end_offset=1))


class Cuts:
    """Notes the truncations that are asked for, and does none."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.restarts: list[int] = []

    def cut(self, follower: Follower, offset: Offset, now: object) -> None:
        self.offsets.append(offset)

    def seek(self, follower: Follower, now: object) -> None:
        raise AssertionError("the fetch offset is in range")

    def restart(self, follower: Follower, offset: Offset, now: object) -> None:
        self.restarts.append(offset)


class Fetching:
    """A follower with three records, which are committed except the last ones, and its fetcher."""

    def __init__(self, uncommitted: int = 0) -> None:
        self.world = World()
        self.world.append(3 - uncommitted, b"x")
        self.world.sync()
        self.world.append(uncommitted, b"x")
        self.cuts = Cuts()
        limits = FetchLimits(
            wait_ms_max=500,
            bytes_min=1,
            partition_bytes_max=100,
            response_bytes_max=100,
            backoff_us=BACKOFF_US,
        )
        self.fetcher = Fetcher(NodeId(1), LEADER, limits, self.cuts, lambda *_, **__: None)

    def follow(self, epoch: int) -> None:
        self.world.place(LEADER, epoch)
        self.world.partition.configure(in_sync_min=1, flush="never", now=NOW)
        self.fetcher.follow(Follower(self.world.partition, TOPIC_ID, LeaderEpoch(epoch)))

    def request(self) -> SentFetch:
        sent = self.fetcher.next_request(1, NOW)
        assert sent is not None
        return sent

    def respond(self, sent: SentFetch, *told: PartitionData) -> None:
        topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(told))]
        self.fetcher.responded(sent, FetchResponse(session_id=SESSION, responses=topics), NOW)


def test_a_response_of_this_epoch_truncates_the_log() -> None:
    fetching = Fetching()
    fetching.follow(EPOCH + 1)
    fetching.respond(fetching.request(), DIVERGES)
    assert fetching.cuts.offsets == [1]


@pytest.mark.parametrize("is_asked_anew", [False, True])
def test_a_response_to_a_fetch_of_an_older_epoch_truncates_nothing(is_asked_anew: bool) -> None:
    fetching = Fetching()
    fetching.follow(EPOCH + 1)
    fetching.respond(fetching.request())  # a session, so that two requests may be in flight
    fetching.fetcher.changed((TOPIC_ID, 0))
    fetching.follow(EPOCH + 2)
    first = fetching.request()
    fetching.follow(EPOCH + 3)
    second = fetching.request() if is_asked_anew else None
    fetching.respond(first, DIVERGES)  # KAFKA-18991
    assert fetching.cuts.offsets == []
    fetching.respond(second or fetching.request(), DIVERGES)
    assert fetching.cuts.offsets == [1]


def test_a_log_begins_anew_if_the_leader_has_deleted_all_that_could_be_compared() -> None:
    fetching = Fetching(uncommitted=1)
    fetching.follow(EPOCH + 1)
    fetching.respond(fetching.request(), PartitionData(high_watermark=3, log_start_offset=3))
    assert fetching.cuts.restarts == [3]
    assert fetching.world.partition.high_watermark == 2


@pytest.mark.parametrize(("uncommitted", "log_start_offset"), [(0, 3), (1, 2)])
def test_a_log_goes_on_whose_records_are_committed_or_compared(
    uncommitted: int, log_start_offset: int
) -> None:
    fetching = Fetching(uncommitted)
    fetching.follow(EPOCH + 1)
    fetching.respond(fetching.request(), PartitionData(high_watermark=3, log_start_offset=log_start_offset))
    assert fetching.cuts.restarts == []
    assert fetching.world.partition.log.log_start_offset == log_start_offset


def test_a_log_goes_on_that_was_compared_before_the_leader_deleted_its_records() -> None:
    fetching = Fetching(uncommitted=1)
    fetching.follow(EPOCH + 1)
    fetching.respond(fetching.request(), PartitionData(high_watermark=2, log_start_offset=2))
    fetching.respond(fetching.request(), PartitionData(high_watermark=3, log_start_offset=3))
    assert fetching.cuts.restarts == []
    assert fetching.world.partition.log.log_start_offset == 3


class Throttling(Fetching):
    """A fetcher that `RATE` applies to, with a partition that is outside its ISR, and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.throttle = Throttle(lambda _topic: None, lambda: None, NOW)
        self.throttle.change(None, RATE, NOW)
        self.outside = {T0}
        self.unanswered: list[SentFetch] = []
        self.fetcher.throttle_by(self.throttle, self.outside.__contains__)
        self.other = World(topic="u")
        self.other.place(LEADER, EPOCH + 1)
        self.other.partition.configure(in_sync_min=1, flush="never", now=NOW)
        self.follow(EPOCH + 1)

    def follow_other(self) -> None:
        self.fetcher.follow(Follower(self.other.partition, OTHER_ID, LeaderEpoch(EPOCH + 1)))

    def ask(self, us: int) -> tuple[list[Uuid], list[Uuid]] | None:
        """The topics that the request names and forgets that is due `us` after the beginning."""
        self.sent = self.fetcher.next_request(1, after(us))
        if self.sent is None:
            return None
        self.unanswered.append(self.sent)
        request = self.sent.request
        return [one.topic_id for one in request.topics], [
            one.topic_id for one in request.forgotten_topics_data
        ]

    def answer(self, us: int, *, high_watermark: int = 9, records: bytes = b"") -> None:
        """The leader answers the last request, and those before it."""
        assert self.sent is not None
        for earlier in [one for one in self.unanswered if one is not self.sent]:
            self.fetcher.responded(earlier, FetchResponse(session_id=SESSION), after(us))
        self.unanswered.clear()
        told = PartitionData(high_watermark=high_watermark, log_start_offset=0, records=records)
        topics = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[told])] if records else []
        self.fetcher.responded(self.sent, FetchResponse(session_id=SESSION, responses=topics), after(us))


RATE = 1_000
OTHER_ID = Uuid(bytes(15) + b"u")
ROOM_US = 20_000


def after(us: int) -> Instant:
    return Instant(Micros(NOW.mono_us + us), NOW.wall_ms)


def test_a_throttled_partition_is_left_out_until_there_is_room_and_the_others_go_on() -> None:
    fetching = Throttling()
    fetching.follow_other()
    assert fetching.ask(0) == ([OTHER_ID], [])
    fetching.answer(0)
    assert fetching.fetcher.deadline() == after(ROOM_US).mono_us
    assert fetching.ask(ROOM_US - 1) == ([], [])
    assert fetching.ask(ROOM_US) == ([TOPIC_ID], [])
    assert fetching.sent is not None
    assert fetching.sent.request.topics[0].partitions[0].partition_max_bytes == RATE // 50
    batch = bytes(build_batch([(None, bytes(60), (), NOW.wall_ms)], base_offset=3))
    fetching.answer(ROOM_US, records=batch)
    assert fetching.world.partition.log.log_end_offset == 4
    assert fetching.ask(ROOM_US) == ([], [TOPIC_ID])
    debt_us = len(batch) * 1_000_000 // RATE
    assert fetching.fetcher.deadline() == after(ROOM_US + debt_us).mono_us
    fetching.answer(ROOM_US)
    assert fetching.ask(ROOM_US + debt_us) == ([TOPIC_ID], [])


def test_a_throttled_partition_alone_keeps_its_session_while_it_waits() -> None:
    fetching = Throttling()
    assert fetching.ask(ROOM_US) == ([TOPIC_ID], [])
    batch = bytes(build_batch([(None, bytes(60), (), NOW.wall_ms)], base_offset=3))
    fetching.answer(ROOM_US, records=batch)
    assert fetching.ask(ROOM_US) is None
    due_us = fetching.fetcher.deadline()
    assert due_us is not None
    assert fetching.ask(due_us - NOW.mono_us) == ([TOPIC_ID], [])
    assert fetching.sent is not None
    assert fetching.sent.request.session_id == SESSION


@pytest.mark.parametrize("reason", ["joined", "reached", "ended"])
def test_a_partition_waits_no_longer_once_it_is_not_throttled(reason: str) -> None:
    fetching = Throttling()
    batch = bytes(build_batch([(None, bytes(60), (), NOW.wall_ms)], base_offset=3))
    fetching.ask(ROOM_US)
    fetching.answer(ROOM_US, records=batch, high_watermark=4 if reason == "reached" else 9)
    if reason == "reached":  # as in Kafka: it has all that is committed, so it is in sync soon
        assert fetching.ask(ROOM_US) == ([TOPIC_ID], [])
        return
    assert fetching.ask(ROOM_US) is None
    if reason == "joined":
        fetching.outside.clear()
        fetching.fetcher.changed((TOPIC_ID, 0))
    else:
        fetching.fetcher.throttle_by(None, fetching.outside.__contains__)
    assert fetching.ask(ROOM_US) == ([TOPIC_ID], [])
    assert fetching.sent is not None
    assert fetching.sent.request.topics[0].partitions[0].partition_max_bytes == 100


def test_partitions_beyond_the_room_wait_until_the_leader_has_answered_others() -> None:
    fetching = Throttling()
    fetching.follow_other()
    fetching.outside.add(fetching.other.partition.topic_partition)
    assert fetching.ask(0) is None
    assert fetching.ask(ROOM_US) == ([TOPIC_ID], [])
    assert fetching.sent is not None
    assert fetching.sent.request.topics[0].partitions[0].partition_max_bytes == RATE // 50
    fetching.answer(ROOM_US, records=bytes(build_batch([(None, b"", (), NOW.wall_ms)], base_offset=3)))
    fetching.ask(ROOM_US)
    due_us = fetching.fetcher.deadline()
    assert due_us is not None
    assert fetching.ask(due_us - NOW.mono_us) == ([OTHER_ID], [TOPIC_ID])


def test_partitions_that_are_throttled_together_share_the_room() -> None:
    fetching = Throttling()
    fetching.follow_other()
    fetching.outside.add(fetching.other.partition.topic_partition)
    fetching.throttle.change(None, 100_000_000, NOW)
    assert fetching.ask(ROOM_US) == ([TOPIC_ID, OTHER_ID], [])
    assert fetching.sent is not None
    bounds = [topic.partitions[0].partition_max_bytes for topic in fetching.sent.request.topics]
    assert bounds == [100, 100]  # the limit of the fetcher is lower than a share
