"""Admin's requests, their brokers, retries, and errors of single items: against brokers that
follow a script.
"""

from collections.abc import Iterator

import pytest

from sparklog.client.admin.admin import Admin, ItemsFailed, NewTopic
from sparklog.client.admin.configs import ConfigChange, ConfigResource
from sparklog.client.admin.groups import GroupOffset
from sparklog.client.transport.connection import UnsupportedByBroker
from sparklog.errors import BrokerError, ConnectionFailed, ErrorCode, RequestTimeout
from sparklog.model import TopicPartition
from sparklog.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from sparklog.wire.messages.consumer_group_describe import DescribedGroup as ModernGroup
from sparklog.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from sparklog.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from sparklog.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from sparklog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from sparklog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from sparklog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from sparklog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from sparklog.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from sparklog.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from sparklog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from sparklog.wire.messages.write_txn_markers import WriteTxnMarkersResponse
from sparklog.wire.schema import Message
from tests.client.wire import ScriptedBroker, metadata, versions

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Pair:
    """Two brokers of one cluster: groups whose name begins with `a` are coordinated by node 1, all others
    by node 2.
    """

    def __init__(self, one: ScriptedBroker, two: ScriptedBroker) -> None:
        self.one, self.two = one, two
        self.wrong_answers = 0
        for broker in (one, two):
            broker.handlers["Metadata"] = lambda _: metadata(nodes=[(1, one.port), (2, two.port)])
            broker.handlers["FindCoordinator"] = self.coordinators

    def coordinators(self, request: Message) -> FindCoordinatorResponse:
        assert isinstance(request, FindCoordinatorRequest)
        keys = request.coordinator_keys or [request.key]
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if self.wrong_answers else 0
        self.wrong_answers = max(0, self.wrong_answers - 1)
        homes = [(key, 1, self.one.port) if key[0] == "a" else (key, 2, self.two.port) for key in keys]
        if request.key:
            return FindCoordinatorResponse(
                node_id=homes[0][1], host="127.0.0.1", port=homes[0][2], error_code=code
            )
        return FindCoordinatorResponse(
            coordinators=[Coordinator(key, node, "127.0.0.1", port, code) for key, node, port in homes]
        )

    def asked(self, api: str) -> list[Message]:
        return [request for broker in (self.one, self.two) for name, request in broker.seen if name == api]

    def serve(self, api: str, *handlers: object) -> None:
        """The same answer from both, or one each."""
        for broker, handler in zip((self.one, self.two), handlers * (2 // len(handlers)), strict=True):
            broker.handlers[api] = handler  # type: ignore[assignment]

    def speak(self, **ranges: tuple[int, int]) -> None:
        self.serve("ApiVersions", lambda _: versions(**ranges))


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ScriptedBroker() as one, ScriptedBroker() as two:
        yield Pair(one, two)


@pytest.fixture
def admin(pair: Pair) -> Iterator[Admin]:
    with Admin(
        bootstrap_servers=pair.one.address,
        default_api_timeout_ms=5000,
        retry_backoff_ms=1,
        reconnect_backoff_ms=1,
    ) as admin:
        yield admin


def deleted(request: Message) -> DeleteGroupsResponse:
    assert isinstance(request, DeleteGroupsRequest)
    codes = {"a-used": ErrorCode.NON_EMPTY_GROUP, "b-gone": ErrorCode.GROUP_ID_NOT_FOUND}
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group, codes.get(group, 0)) for group in request.groups_names]
    )


# -- groups --------------------------------------------------------------------------------------------------


def test_each_coordinator_is_asked_once_about_all_its_groups(pair: Pair, admin: Admin) -> None:
    pair.serve("DeleteGroups", deleted)
    admin.delete_groups(["a1", "b1", "a2", "b2", "a1"])
    assert [request.groups_names for request in pair.asked("DeleteGroups")] == [["a1", "a2"], ["b1", "b2"]]  # type: ignore[attr-defined]


def test_what_failed_is_told_by_item_and_the_rest_is_done(pair: Pair, admin: Admin) -> None:
    pair.serve("DeleteGroups", deleted)
    with pytest.raises(ItemsFailed) as failed:
        admin.delete_groups(["a1", "a-used", "b-gone", "b2"])
    assert {group: error.code for group, error in failed.value.errors.items()} == {
        "a-used": ErrorCode.NON_EMPTY_GROUP,
        "b-gone": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert list(failed.value.results) == ["a1", "b2"]
    assert isinstance(failed.value, BrokerError)
    assert failed.value.code is ErrorCode.NON_EMPTY_GROUP
    assert str(failed.value) == "NON_EMPTY_GROUP (68): group 'a-used' (and 1 more failed)"


def test_a_coordinator_that_is_not_there_yet_is_looked_for_again(pair: Pair, admin: Admin) -> None:
    pair.wrong_answers = 2
    pair.serve("DeleteGroups", deleted)
    admin.delete_groups(["a1"])
    assert len(pair.asked("FindCoordinator")) == 3


def test_a_group_that_moved_is_asked_for_where_it_is_now(pair: Pair, admin: Admin) -> None:
    answers = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]
    pair.serve(
        "DeleteGroups", lambda _: DeleteGroupsResponse(results=[DeletableGroupResult("a1", answers.pop(0))])
    )
    admin.delete_groups(["a1"])
    assert answers == []


def test_a_change_whose_answer_is_lost_is_sent_again(pair: Pair, admin: Admin) -> None:
    lost = [True, True]
    pair.serve("DeleteGroups", lambda request: None if lost and lost.pop() else deleted(request))
    admin.delete_groups(["a1"])
    assert len(pair.asked("DeleteGroups")) == 3


def test_a_change_at_any_broker_whose_answer_is_lost_is_sent_again(pair: Pair, admin: Admin) -> None:
    lost = [True]
    answer = DeleteTopicsResponse(responses=[DeletableTopicResult(name="t")])
    pair.serve("DeleteTopics", lambda _: None if lost and lost.pop() else answer)
    admin.delete_topics(["t"])
    assert len(pair.asked("DeleteTopics")) == 2


def test_a_change_at_one_named_broker_is_sent_once(pair: Pair, admin: Admin) -> None:
    pair.serve("IncrementalAlterConfigs", lambda _: None)
    with pytest.raises(ConnectionFailed):
        admin.alter_configs({ConfigResource("broker", "1"): [ConfigChange("log.retention.ms", "1")]})
    assert len(pair.asked("IncrementalAlterConfigs")) == 1


def test_a_question_whose_answer_is_lost_is_asked_again(pair: Pair, admin: Admin) -> None:
    answers: list[OffsetFetchResponse | None] = [
        None,
        OffsetFetchResponse(groups=[OffsetFetchResponseGroup("a1")]),
    ]
    pair.serve("OffsetFetch", lambda _: answers.pop(0))
    assert admin.list_group_offsets(["a1"]) == {"a1": {}}


def test_a_coordinator_is_looked_for_again_when_the_answer_is_lost(pair: Pair, admin: Admin) -> None:
    lost = [True, True]
    pair.serve("DeleteGroups", deleted)
    pair.serve("FindCoordinator", lambda request: None if lost and lost.pop() else pair.coordinators(request))
    admin.delete_groups(["a1"])
    assert len(pair.asked("FindCoordinator")) == 3
    assert len(pair.asked("DeleteGroups")) == 1


def test_coordinators_of_old_brokers_are_asked_for_one_at_a_time(pair: Pair, admin: Admin) -> None:
    pair.speak(FindCoordinator=(0, 3))
    pair.serve("DeleteGroups", deleted)
    admin.delete_groups(["a1", "b1"])
    assert [request.key for request in pair.asked("FindCoordinator")] == ["a1", "b1"]  # type: ignore[attr-defined]


def test_groups_of_every_broker_are_listed_in_order(pair: Pair, admin: Admin) -> None:
    pair.serve(
        "ListGroups",
        lambda _: ListGroupsResponse(groups=[ListedGroup("b", "consumer", "Empty", "Classic")]),
        lambda _: ListGroupsResponse(groups=[ListedGroup("a", "consumer", "Stable", "Consumer")]),
    )
    assert [(group.group_id, group.type, group.state) for group in admin.list_groups()] == [
        ("a", "Consumer", "Stable"),
        ("b", "Classic", "Empty"),
    ]


def test_a_filter_that_an_old_broker_cannot_hear_is_said_so(pair: Pair, admin: Admin) -> None:
    pair.speak(ListGroups=(0, 3))
    pair.serve("ListGroups", lambda _: ListGroupsResponse())
    assert admin.list_groups() == []
    with pytest.raises(UnsupportedByBroker, match="ListGroups"):
        admin.list_groups(states=["Stable"])


def test_what_is_no_group_of_the_new_protocol_is_described_as_a_classic_one(pair: Pair, admin: Admin) -> None:
    absent = ErrorCode.GROUP_ID_NOT_FOUND
    modern = [
        ModernGroup(group_id="a-new", group_state="Stable", group_epoch=3),
        ModernGroup(error_code=absent, group_id="a-old"),
    ]
    pair.serve("ConsumerGroupDescribe", lambda _: ConsumerGroupDescribeResponse(groups=modern))
    pair.serve(
        "DescribeGroups",
        lambda _: DescribeGroupsResponse(groups=[DescribedGroup(group_id="a-old", group_state="Empty")]),
    )
    described = admin.describe_groups(["a-new", "a-old"])
    assert [(group.group_id, group.type, group.epoch) for group in described.values()] == [
        ("a-new", "Consumer", 3),
        ("a-old", "Classic", -1),
    ]
    (classic,) = pair.asked("DescribeGroups")
    assert isinstance(classic, DescribeGroupsRequest)
    assert classic.groups == ["a-old"]


def test_a_dead_group_of_an_old_broker_is_one_that_is_not_there(pair: Pair, admin: Admin) -> None:
    pair.speak(ConsumerGroupDescribe=(0, -1), DescribeGroups=(0, 5))
    pair.serve(
        "DescribeGroups",
        lambda _: DescribeGroupsResponse(groups=[DescribedGroup(group_id="a", group_state="Dead")]),
    )
    with pytest.raises(ItemsFailed, match="GROUP_ID_NOT_FOUND"):
        admin.describe_groups(["a"])


def test_offsets_are_fetched_in_one_request_or_by_group_from_old_brokers(pair: Pair, admin: Admin) -> None:
    def batched(request: Message) -> OffsetFetchResponse:
        assert isinstance(request, OffsetFetchRequest)
        told = [OffsetFetchResponsePartitions(1, 7, 2, "m"), OffsetFetchResponsePartitions(0, -1)]
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(g.group_id, [OffsetFetchResponseTopics("t", partitions=told)])
                for g in request.groups
            ]
        )

    def single(request: Message) -> OffsetFetchResponse:
        return OffsetFetchResponse(
            topics=[OffsetFetchResponseTopic("t", [OffsetFetchResponsePartition(1, 7, 2, "m")])]
        )

    expected = {"a1": {T1: GroupOffset(7, 2, "m")}, "a2": {T1: GroupOffset(7, 2, "m")}}  # type: ignore[arg-type]
    pair.serve("OffsetFetch", batched)
    assert admin.list_group_offsets({"a1": None, "a2": [T0, T1]}) == expected
    assert len(pair.asked("OffsetFetch")) == 1
    with Admin(bootstrap_servers=pair.one.address, default_api_timeout_ms=5000) as other:
        pair.speak(OffsetFetch=(1, 7))
        pair.serve("OffsetFetch", single)
        assert other.list_group_offsets({"a1": None, "a2": [T0, T1]}) == expected
    assert len(pair.asked("OffsetFetch")) == 3


def test_offsets_refused_for_a_partition_are_told_by_partition(pair: Pair, admin: Admin) -> None:
    told = [
        OffsetCommitResponsePartition(0),
        OffsetCommitResponsePartition(1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    pair.serve(
        "OffsetCommit",
        lambda _: OffsetCommitResponse(topics=[OffsetCommitResponseTopic("t", partitions=told)]),
    )
    with pytest.raises(ItemsFailed) as failed:
        admin.alter_group_offsets("a1", {T0: 1, T1: 2})
    assert (list(failed.value.errors), list(failed.value.results)) == ([T1], [T0])


# -- topics and settings -------------------------------------------------------------------------------------


def test_partitions_are_described_page_by_page(pair: Pair, admin: Admin) -> None:
    def page(request: Message) -> DescribeTopicPartitionsResponse:
        assert isinstance(request, DescribeTopicPartitionsRequest)
        first = 0 if request.cursor is None else request.cursor.partition_index
        told = DescribeTopicPartitionsResponsePartition(
            partition_index=first, leader_id=1, replica_nodes=[1, 2], isr_nodes=[1]
        )
        topics = [DescribeTopicPartitionsResponseTopic(name="t", partitions=[told])]
        return DescribeTopicPartitionsResponse(
            topics=topics, next_cursor=Cursor("t", first + 1) if first < 2 else None
        )

    pair.serve("DescribeTopicPartitions", page)
    partitions = admin.describe_topics(["t"])["t"].partitions
    assert [partition.partition for partition in partitions] == [0, 1, 2]
    assert partitions[0].is_under_replicated


def test_pages_that_do_not_move_on_end_in_an_error(pair: Pair, admin: Admin) -> None:
    pair.serve(
        "DescribeTopicPartitions", lambda _: DescribeTopicPartitionsResponse(next_cursor=Cursor("t", 0))
    )
    with pytest.raises(BrokerError, match="do not get past 't'"):
        admin.describe_topics(["t"])


def test_topics_that_were_refused_do_not_keep_the_others_from_being_made(pair: Pair, admin: Admin) -> None:
    results = [
        CreatableTopicResult("t", num_partitions=2),
        CreatableTopicResult("u", error_code=17, error_message="not a good name"),
    ]
    pair.serve("CreateTopics", lambda _: CreateTopicsResponse(topics=results))
    pair.serve("Metadata", lambda _: metadata({"t": [1, 2]}, nodes=[(1, pair.one.port), (2, pair.two.port)]))
    with pytest.raises(ItemsFailed, match="not a good name") as failed:
        admin.create_topics([NewTopic("t", 2), NewTopic("u")])
    assert failed.value.results["t"].partition_count == 2


def test_names_stand_alone_in_deletions_for_old_brokers(pair: Pair, admin: Admin) -> None:
    pair.speak(DeleteTopics=(1, 5))
    pair.serve(
        "DeleteTopics",
        lambda _: DeleteTopicsResponse(
            responses=[DeletableTopicResult("t"), DeletableTopicResult("u", error_code=3)]
        ),
    )
    with pytest.raises(ItemsFailed) as failed:
        admin.delete_topics(["t", "u"])
    (request,) = pair.asked("DeleteTopics")
    assert isinstance(request, DeleteTopicsRequest)
    assert (request.topic_names, list(failed.value.errors)) == (["t", "u"], ["u"])


def test_settings_of_a_broker_go_to_that_broker(pair: Pair, admin: Admin) -> None:
    def altered(request: Message) -> IncrementalAlterConfigsResponse:
        assert isinstance(request, IncrementalAlterConfigsRequest)
        return IncrementalAlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(0, None, one.resource_type, one.resource_name)
                for one in request.resources
            ]
        )

    pair.serve("IncrementalAlterConfigs", altered)
    change = [ConfigChange("k", "v", "append")]
    admin.alter_configs(
        {
            ConfigResource("broker", "2"): change,
            ConfigResource("broker", ""): change,
            ConfigResource("topic", "t"): change,
        }
    )
    (told,) = [
        request
        for name, request in pair.two.seen
        if name == "IncrementalAlterConfigs" and len(request.resources) == 1
    ]  # type: ignore[attr-defined]
    assert isinstance(told, IncrementalAlterConfigsRequest)
    assert (told.resources[0].resource_name, told.resources[0].configs[0].config_operation) == ("2", 2)
    with pytest.raises(BrokerError, match="no broker 3; there are 1, 2"):
        admin.alter_configs({ConfigResource("broker", "3"): change})


def test_an_api_that_a_broker_does_not_speak_is_named(pair: Pair, admin: Admin) -> None:
    pair.speak(DescribeQuorum=(0, -1))
    with pytest.raises(UnsupportedByBroker, match="DescribeQuorum"):
        admin.describe_quorum()


def test_a_cluster_that_never_comes_round_is_a_timeout(pair: Pair) -> None:
    pair.wrong_answers = 1_000_000
    with (
        Admin(bootstrap_servers=pair.one.address, default_api_timeout_ms=100, retry_backoff_ms=10) as admin,
        pytest.raises((ItemsFailed, RequestTimeout)),
    ):
        admin.delete_groups(["a1"])


def test_an_abort_that_the_reply_does_not_mention_has_failed(pair: Pair, admin: Admin) -> None:
    pair.serve("Metadata", lambda _: metadata({"t": [1]}, nodes=[(1, pair.one.port), (2, pair.two.port)]))
    pair.serve("WriteTxnMarkers", lambda _: WriteTxnMarkersResponse(markers=[]))
    with pytest.raises(BrokerError) as refused:
        admin.abort_transaction(T0, producer_id=5, producer_epoch=0, coordinator_epoch=0)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
