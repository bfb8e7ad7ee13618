"""The consumer's side of a group over real sockets: a broker that follows a script, listeners, commits and
the order of things.
"""

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sparklog.client.clock import now_us
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.failures import NoOffset
from sparklog.client.membership.assignors import encode_assignment
from sparklog.client.transport.connection import Answer
from sparklog.client.transport.network import Network
from sparklog.errors import BrokerError, ErrorCode, RequestTimeout, SettingsError, SparklogError
from sparklog.model import Micros, TopicPartition
from sparklog.record.batch import build_batch
from sparklog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from sparklog.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from sparklog.wire.messages.heartbeat import HeartbeatResponse
from sparklog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from sparklog.wire.messages.leave_group import LeaveGroupResponse
from sparklog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from sparklog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from sparklog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from sparklog.wire.messages.sync_group import SyncGroupResponse
from sparklog.wire.schema import Message
from tests.client.wire import TOPIC_ID, ScriptedBroker, metadata, versions

T0 = TopicPartition("t", 0)
LENGTH = 10
PATIENCE_S = 20
"""A third of what a call may take that waits for what has come already."""


class Coordination:
    """One group with one member and one partition of ten records; each request is answered, and noted in
    order.
    """

    def __init__(self) -> None:
        self.committed = -1
        self.commit_code = ErrorCode.NONE
        self.heartbeat_code = ErrorCode.NONE
        self.generation = 0
        self.notes: list[str] = []

    def find(self, _: Message) -> Message:
        return FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=1)])

    def join(self, request: Message) -> Message:
        assert isinstance(request, JoinGroupRequest)
        self.generation += 1
        self.heartbeat_code = ErrorCode.NONE
        self.notes.append(f"join {self.generation}")
        return JoinGroupResponse(
            generation_id=self.generation, protocol_name="range", leader="x", member_id="me"
        )

    def sync(self, _: Message) -> Message:
        return SyncGroupResponse(assignment=encode_assignment([T0]))

    def heartbeat(self, _: Message) -> Message:
        return HeartbeatResponse(error_code=self.heartbeat_code)

    def leave(self, _: Message) -> Message:
        self.notes.append("leave")
        return LeaveGroupResponse()

    def commit(self, request: Message) -> Message:
        assert isinstance(request, OffsetCommitRequest)
        offset = request.topics[0].partitions[0].committed_offset
        self.notes.append(f"commit {offset}")
        if self.commit_code is ErrorCode.NONE:
            self.committed = offset
        told = OffsetCommitResponsePartition(0, self.commit_code)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[told])])

    def look_up(self, request: Message) -> Message:
        assert isinstance(request, OffsetFetchRequest)
        told = OffsetFetchResponsePartitions(partition_index=0, committed_offset=self.committed)
        topic = OffsetFetchResponseTopics(name="t", partitions=[told])
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])


def fetch(request: Message) -> Message:
    assert isinstance(request, FetchRequest)
    if not request.topics:
        return FetchResponse()
    offset = request.topics[0].partitions[0].fetch_offset
    found = b"".join(
        bytes(build_batch([(None, b"%d" % n, (), 5)], base_offset=n)) for n in range(offset, LENGTH)
    )
    if not found:
        threading.Event().wait(0.01)
    told = PartitionData(partition_index=0, high_watermark=LENGTH, records=found)
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[told])])


def list_offsets(request: Message) -> Message:
    assert isinstance(request, ListOffsetsRequest)
    asked = request.topics[0].partitions[0].timestamp
    told = ListOffsetsPartitionResponse(partition_index=0, offset={-1: LENGTH, -2: 0}.get(asked, 6))
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[told])])


@pytest.fixture
def coordination() -> Coordination:
    return Coordination()


@pytest.fixture
def broker(coordination: Coordination) -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as broker:
        broker.handlers |= {
            "Metadata": lambda _: metadata({"t": [1]}, nodes=[(1, broker.port)]),
            "FindCoordinator": coordination.find,
            "JoinGroup": coordination.join,
            "SyncGroup": coordination.sync,
            "Heartbeat": coordination.heartbeat,
            "LeaveGroup": coordination.leave,
            "OffsetCommit": coordination.commit,
            "OffsetFetch": coordination.look_up,
            "Fetch": fetch,
            "ListOffsets": list_offsets,
        }
        yield broker


def consumer(broker: ScriptedBroker, **given: Any) -> Consumer:
    chosen = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 20, "retry_backoff_ms": 1} | given
    return Consumer(bootstrap_servers=broker.address, group_id="g", **chosen)


def read(reader: Consumer, count: int) -> list[int]:
    offsets: list[int] = []
    for _ in range(200):
        offsets += [record.offset for record in reader.poll(100, count - len(offsets))]
        if len(offsets) == count:
            break
    return offsets


def test_listeners_commits_and_leaving_happen_in_order(
    broker: ScriptedBroker, coordination: Coordination
) -> None:
    notes = coordination.notes
    with consumer(broker) as reader:
        reader.subscribe(
            ["t"],
            on_assign=lambda held: notes.append(f"assigned {held[0]}"),
            on_revoke=lambda _: notes.append("revoked"),
        )
        assert read(reader, 4) == [0, 1, 2, 3]
        assert reader.assignment() == (T0,)
    assert notes == ["join 1", "assigned t-0", "commit 4", "revoked", "leave"]


def test_a_rebalance_revokes_after_committing_what_was_handed_out(
    broker: ScriptedBroker, coordination: Coordination
) -> None:
    notes = coordination.notes
    with consumer(broker) as reader:
        reader.subscribe(
            ["t"], on_assign=lambda _: notes.append("assigned"), on_revoke=lambda _: notes.append("revoked")
        )
        assert read(reader, 3) == [0, 1, 2]
        coordination.heartbeat_code = ErrorCode.REBALANCE_IN_PROGRESS
        while coordination.generation < 2:
            reader.poll(10, 1)
    assert notes.index("revoked") < notes.index("join 2")
    assert notes[notes.index("revoked") - 1].startswith("commit")


def test_what_a_poll_hands_out_is_not_committed_before_the_next_one(
    broker: ScriptedBroker, coordination: Coordination
) -> None:
    with consumer(broker, auto_commit_interval_ms=0) as reader:
        reader.subscribe(["t"])
        assert read(reader, 2) == [0, 1]
        assert coordination.committed < 2
        reader.pause([T0])
        while coordination.committed < 2:
            reader.poll(10)


def test_without_automatic_commits_nothing_is_committed_unasked(
    broker: ScriptedBroker, coordination: Coordination
) -> None:
    with consumer(broker, enable_auto_commit=False) as reader:
        reader.subscribe(["t"])
        assert read(reader, 5) == [0, 1, 2, 3, 4]
    assert coordination.committed == -1


def test_reading_begins_where_the_group_stands(broker: ScriptedBroker, coordination: Coordination) -> None:
    coordination.committed = 7
    with consumer(broker) as reader:
        reader.subscribe(["t"])
        assert read(reader, 3) == [7, 8, 9]
        assert reader.position(T0) == 10


def test_partitions_assigned_by_hand_begin_where_the_group_stands_too(
    broker: ScriptedBroker, coordination: Coordination
) -> None:
    coordination.committed = 8
    with consumer(broker) as reader:
        reader.assign([T0])
        assert reader.position(T0) == 8
        reader.seek(T0, 3)
        assert read(reader, 1) == [3]
    assert "join 1" not in coordination.notes
    assert coordination.notes == ["commit 4"]


def test_a_listener_may_seek(broker: ScriptedBroker) -> None:
    with consumer(broker) as reader:
        reader.subscribe(["t"], on_assign=lambda held: [reader.seek(partition, 5) for partition in held])
        assert read(reader, 2) == [5, 6]


def test_a_listener_that_raises_is_heard_and_the_group_goes_on(broker: ScriptedBroker) -> None:
    with consumer(broker) as reader:
        troubles = [ValueError("no")]

        def assigned(_: object) -> None:
            if troubles:
                raise troubles.pop()

        reader.subscribe(["t"], on_assign=assigned)
        with pytest.raises(ValueError, match="no"):
            read(reader, 1)
        assert read(reader, 1) == [0]


def test_a_session_that_ended_is_told_as_lost_and_nothing_is_committed(
    broker: ScriptedBroker, coordination: Coordination
) -> None:
    notes = coordination.notes
    with consumer(broker) as reader:
        reader.subscribe(
            ["t"], on_revoke=lambda _: notes.append("revoked"), on_lost=lambda _: notes.append("lost")
        )
        read(reader, 2)
        coordination.heartbeat_code = ErrorCode.UNKNOWN_MEMBER_ID
        while coordination.generation < 2:
            reader.poll(10, 1)
        assert notes[:3] == ["join 1", "lost", "join 2"]


def test_unsubscribing_leaves_and_subscribing_again_joins_again(
    broker: ScriptedBroker, coordination: Coordination
) -> None:
    with consumer(broker, enable_auto_commit=False) as reader:
        reader.subscribe(["t"])
        read(reader, 1)
        reader.unsubscribe()
        assert reader.assignment() == ()
        reader.subscribe(["t"])
        assert read(reader, 1) == [0]
    assert coordination.notes == ["join 1", "leave", "join 2", "leave"]


def test_a_refused_commit_is_raised_and_an_asynchronous_one_told_to_its_callback(
    broker: ScriptedBroker, coordination: Coordination
) -> None:
    coordination.commit_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    told: list[SparklogError | None] = []
    with consumer(broker, enable_auto_commit=False) as reader:
        with pytest.raises(BrokerError, match="t-0"):
            reader.commit({T0: 1})
        reader.commit_async({T0: 1}, lambda _, error: told.append(error))
    assert isinstance(told[0], BrokerError)


def test_a_commit_that_nobody_answers_ends_in_time(broker: ScriptedBroker) -> None:
    del broker.handlers["OffsetCommit"]
    reader = consumer(broker, enable_auto_commit=False)
    with pytest.raises(RequestTimeout):
        reader.commit({T0: 1}, timeout_ms=50)
    reader.close(timeout_ms=50)


def test_without_offset_and_reset_the_consumer_says_so(broker: ScriptedBroker) -> None:
    with consumer(broker, auto_offset_reset="none") as reader:
        reader.subscribe(["t"])
        with pytest.raises(NoOffset):
            read(reader, 1)


def test_a_duration_goes_back_by_the_clock(broker: ScriptedBroker) -> None:
    with consumer(broker, auto_offset_reset="by_duration:PT1H") as reader:
        reader.assign([T0])
        assert reader.position(T0) == 6


def position(reader: Consumer) -> int:
    """Of T0, found without waiting for as long as a call may take."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(reader.position, T0).result(PATIENCE_S)


def test_a_position_is_found_though_its_leader_answered_before_the_consumer_waits(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    greetings, may_greet = itertools.count(1), threading.Event()

    def greet(_: Message) -> Message:
        assert next(greetings) < 4 or may_greet.wait(60)
        return versions()

    def poll_late(self: Network, deadline: Micros) -> list[Answer]:
        monkeypatch.undo()
        self.wait(Micros(now_us() + PATIENCE_S * 1_000_000))
        return self.poll(deadline)

    broker.handlers["ApiVersions"] = greet
    with consumer(broker) as reader:
        reader.assign([T0])
        reader.poll(0)  # asks for the group's offsets
        assert reader.committed([T0]) == {
            T0: None
        }  # asked later, so they are known by now, and the group has greeted twice
        while [name for name, _ in broker.seen].count("ApiVersions") < 4:
            reader.poll(0)
        monkeypatch.setattr(Network, "poll", poll_late)
        may_greet.set()
        assert position(reader) == 0


def test_the_position_of_a_paused_partition_is_where_the_group_stands(
    broker: ScriptedBroker, coordination: Coordination
) -> None:
    coordination.committed = 7
    with consumer(broker) as reader:
        assert reader.partitions_for("t") == [0]
        reader.assign([T0])
        reader.pause([T0])
        assert position(reader) == 7


def test_a_partition_that_begins_nowhere_is_refused_at_once(broker: ScriptedBroker) -> None:
    with Consumer(bootstrap_servers=broker.address, auto_offset_reset="none") as reader:
        assert reader.partitions_for("t") == [0]
        reader.assign([T0])
        with pytest.raises(NoOffset):
            position(reader)


def test_a_partition_assigned_again_is_read_though_its_records_came_meanwhile(broker: ScriptedBroker) -> None:
    may_answer = threading.Event()

    def held(request: Message) -> Message:
        assert may_answer.wait(60)
        return fetch(request)

    with Consumer(bootstrap_servers=broker.address, auto_offset_reset="earliest") as reader:
        reader.assign([T0])
        assert read(reader, 1) == [0]
        broker.handlers["Fetch"] = held
        reader.seek(T0, 5)
        while broker.seen[-1][0] != "Fetch":
            reader.poll(0)
        reader.assign([])
        may_answer.set()
        assert reader.end_offsets([T0]) == {T0: LENGTH}  # answered after the Fetch, on the same connection
        reader.poll(0)
        reader.assign([T0])
        assert read(reader, 1) == [0]


def test_a_refused_look_at_offsets_costs_no_record_of_another_partition(broker: ScriptedBroker) -> None:
    refused = OffsetFetchResponse(
        groups=[OffsetFetchResponseGroup(group_id="g", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)]
    )
    broker.handlers |= {
        "Metadata": lambda _: metadata({"t": [1, 1]}, nodes=[(1, broker.port)]),
        "OffsetFetch": lambda _: refused,
    }
    with consumer(broker, enable_auto_commit=False) as reader:
        reader.assign([T0])
        reader.seek(T0, 0)
        given, refusals = [0], 0
        assert read(reader, 1) == given
        reader.assign([T0, TopicPartition("t", 1)])
        while given[-1] < LENGTH - 1:
            try:
                given += [record.offset for record in reader.poll(100, 1)]
            except BrokerError:
                refusals += 1
            with pytest.raises(BrokerError):
                reader.committed(
                    [T0]
                )  # asked after the offset of the other partition, so that one is refused by now
        assert given == list(range(LENGTH))
        assert refusals


@pytest.mark.parametrize("give_up", [lambda reader: reader.assign([]), Consumer.unsubscribe])
def test_a_partition_that_comes_back_begins_where_the_group_stands_now(
    broker: ScriptedBroker, coordination: Coordination, give_up: Callable[[Consumer], None]
) -> None:
    is_asked, may_answer = threading.Event(), threading.Event()

    def answer_late(request: Message) -> Message:
        coordination.committed = 7 if is_asked.is_set() else 2
        reply = coordination.look_up(request)
        is_asked.set()
        assert may_answer.wait(PATIENCE_S)
        return reply

    broker.handlers["OffsetFetch"] = answer_late
    with consumer(broker) as reader:
        reader.assign([T0])
        reader.poll(0)
        assert is_asked.wait(PATIENCE_S)
        give_up(reader)
        reader.assign([T0])
        may_answer.set()
        assert position(reader) == 7


def test_what_needs_a_group_says_so(broker: ScriptedBroker) -> None:
    with Consumer(bootstrap_servers=broker.address) as reader:
        for call in (
            lambda: reader.subscribe(["t"]),
            reader.commit,
            lambda: reader.committed([T0]),
            reader.group_metadata,
        ):
            with pytest.raises(SettingsError, match="group_id"):
                call()


def test_subscribing_and_assigning_by_hand_exclude_each_other(broker: ScriptedBroker) -> None:
    with consumer(broker) as reader:
        reader.subscribe(["t"])
        with pytest.raises(ValueError, match="unsubscribe"):
            reader.assign([T0])
        for wrong in ({}, {"topics": ["t"], "pattern": "t"}):
            with pytest.raises(ValueError, match="a pattern"):
                reader.subscribe(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("spoken", [(0, -1), (0, 3)])
def test_a_broker_without_groups_or_too_old_for_them_is_named_as_the_reason(
    broker: ScriptedBroker, spoken: tuple[int, int]
) -> None:
    broker.handlers["ApiVersions"] = lambda _: versions(FindCoordinator=spoken)
    with consumer(broker) as reader:
        reader.subscribe(["t"])
        with pytest.raises(BrokerError, match="UNSUPPORTED_VERSION"):
            read(reader, 1)


def test_a_pattern_that_the_broker_cannot_be_told_of_is_refused(broker: ScriptedBroker) -> None:
    broker.handlers["ApiVersions"] = lambda _: versions(ConsumerGroupHeartbeat=(0, 0))
    with Consumer(bootstrap_servers=broker.address, group_id="g", group_protocol="consumer") as reader:
        reader.subscribe(pattern="t.*")
        with pytest.raises(BrokerError, match="UNSUPPORTED_VERSION"):
            read(reader, 1)


def test_who_polls_for_long_commits_meanwhile_and_does_not_spin(
    broker: ScriptedBroker, coordination: Coordination
) -> None:
    with consumer(broker, auto_commit_interval_ms=0) as reader:
        reader.subscribe(["t"])
        assert read(reader, LENGTH) == list(range(LENGTH))
        before = len(coordination.notes)
        reader.poll(250)
        assert coordination.committed == LENGTH
        assert len(coordination.notes) - before < 60
