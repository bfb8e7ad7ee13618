"""The fetches of the partitions that one leader has: which responses count, and what they prove."""

import pytest

from sparklog.model import Instant, LeaderEpoch, Micros, NodeId, Offset, Uuid
from sparklog.wire.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from sparklog_server.replica.fetch_sessions import Throttled
from sparklog_server.replica.fetcher import Fetcher, FetchLimits, SentFetch
from sparklog_server.replica.follower import Follower
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

    def __init__(self, uncommitted: int = 0, throttled: Throttled | None = None) -> None:
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
        self.fetcher = Fetcher(NodeId(1), LEADER, limits, self.cuts, lambda *_, **__: None, throttled)

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


def test_a_throttled_partition_is_left_out_of_the_fetches_until_it_is_not() -> None:
    is_throttled = False
    fetching = Fetching(throttled=lambda partition: is_throttled and partition == T0)
    fetching.follow(EPOCH + 1)
    other, other_id = World(topic="u"), Uuid(bytes(15) + b"u")
    other.place(LEADER, EPOCH + 1)
    fetching.fetcher.follow(Follower(other.partition, other_id, LeaderEpoch(EPOCH + 1)))
    first = fetching.request()
    assert {topic.topic_id for topic in first.request.topics} == {TOPIC_ID, other_id}
    is_throttled = True
    fetching.respond(first, PartitionData(high_watermark=3, log_start_offset=0, records=b""))
    sent = fetching.request().request
    assert sent.topics == []
    assert [(one.topic_id, one.partitions) for one in sent.forgotten_topics_data] == [(TOPIC_ID, [0])]
    later = Instant(Micros(NOW.mono_us + BACKOFF_US), NOW.wall_ms)
    assert fetching.fetcher.deadline() == later.mono_us
    assert fetching.fetcher.next_request(1, later) is None
    is_throttled = False
    later = Instant(Micros(later.mono_us + BACKOFF_US), NOW.wall_ms)
    again = fetching.fetcher.next_request(1, later)
    assert again is not None
    assert [topic.topic_id for topic in again.request.topics] == [TOPIC_ID]
