"""Questions to every broker of a cluster: what answered is told apart from what did not.

A scripted broker without an answer to ApiVersions accepts connections and is silent, as a process that hangs.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

import pytest

from sparklog.client.admin.admin import Admin, ItemsFailed
from sparklog.client.settings import ClientSettings
from sparklog.client.transport.connection import UnsupportedByBroker
from sparklog.errors import BrokerError, ErrorCode
from sparklog.wire.messages.delete_groups import DeleteGroupsRequest
from sparklog.wire.messages.describe_cluster import DescribeClusterResponse
from sparklog.wire.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from sparklog.wire.messages.describe_log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult
from sparklog.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from sparklog.wire.messages.list_transactions import ListTransactionsResponse, TransactionState
from sparklog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from sparklog.wire.schema import Message
from tests.client.admin.test_admin import Pair
from tests.client.wire import ScriptedBroker, metadata

HUNG = "ApiVersions"
TIMEOUT_MS = 250


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ScriptedBroker() as one, ScriptedBroker() as two:
        pair = Pair(one, two)
        pair.serve("ListGroups", lambda _: groups("a"), lambda _: groups("b"))
        pair.serve("ListTransactions", lambda _: transactions("x"), lambda _: transactions("y"))
        pair.serve("DescribeLogDirs", lambda _: directories("/one"), lambda _: directories("/two"))
        pair.speak(ConsumerGroupDescribe=(0, -1))
        yield pair


def groups(*names: str) -> ListGroupsResponse:
    return ListGroupsResponse(groups=[ListedGroup(name, "consumer", "Empty", "Classic") for name in names])


def transactions(name: str) -> ListTransactionsResponse:
    return ListTransactionsResponse(transaction_states=[TransactionState(name, 7, "Ongoing")])


def directories(path: str) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir=path)])


@contextmanager
def administering(pair: Pair, *, awaits_silent: bool = True, timeout_ms: int = TIMEOUT_MS) -> Iterator[Admin]:
    settings = ClientSettings.for_role(
        "admin",
        {
            "bootstrap_servers": pair.one.address,
            "default_api_timeout_ms": timeout_ms,
            "request_timeout_ms": 10_000,
            "retry_backoff_ms": 1,
            "reconnect_backoff_ms": 1,
        },
    )
    with Admin.from_settings(settings, awaits_silent=awaits_silent) as admin:
        yield admin


def hang(broker: ScriptedBroker) -> None:
    del broker.handlers[HUNG]


@pytest.mark.parametrize("awaits_silent", [True, False])
def test_listings_name_a_broker_that_hangs_and_have_what_the_others_answered(
    pair: Pair, *, awaits_silent: bool
) -> None:
    hang(pair.two)
    with administering(pair, awaits_silent=awaits_silent) as admin:
        for listing, listed in (
            (admin.list_groups, lambda found: [one.group_id for one in found]),
            (admin.list_transactions, lambda found: [one.transactional_id for one in found]),
            (admin.describe_log_dirs, lambda found: [one.path for one in found]),
        ):
            with pytest.raises(ItemsFailed, match=f"broker 2 at {pair.two.address} did not answer") as failed:
                listing()
            assert list(failed.value.errors) == [2]
            assert failed.value.code is ErrorCode.REQUEST_TIMED_OUT
            assert {node: listed(found) for node, found in failed.value.results.items()} in (
                {1: ["a"]},
                {1: ["x"]},
                {1: ["/one"]},
            )


def test_a_survey_waits_for_a_silent_broker_once(pair: Pair) -> None:
    hang(pair.two)
    with administering(pair, awaits_silent=False, timeout_ms=60_000) as admin:
        with pytest.raises(ItemsFailed, match=r"did not answer within 2\.\d s"):
            admin.list_groups()
        begun_s = time.monotonic()
        with pytest.raises(ItemsFailed, match="broker 2"):
            admin.describe_log_dirs()
        with pytest.raises(BrokerError, match="broker 2") as failed:
            admin.delete_groups(["b"])
        assert failed.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert time.monotonic() - begun_s < 2  # twice a quarter of a second
        assert [one for one in pair.asked("DeleteGroups") if isinstance(one, DeleteGroupsRequest)] == []


def test_a_broker_that_answers_again_is_listed_again(pair: Pair) -> None:
    answer = pair.two.handlers[HUNG]
    hang(pair.two)
    with administering(pair) as admin:
        with pytest.raises(ItemsFailed):
            admin.list_groups()
        pair.two.handlers[HUNG] = answer
        pair.two.reset_connections()
        assert [one.group_id for one in admin.list_groups()] == ["a", "b"]


def test_a_broker_that_refuses_is_named_and_the_others_are_listed(pair: Pair) -> None:
    refused = ListGroupsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    pair.serve("ListGroups", lambda _: groups("a"), lambda _: refused)
    with (
        administering(pair) as admin,
        pytest.raises(ItemsFailed, match="CLUSTER_AUTHORIZATION_FAILED") as failed,
    ):
        admin.list_groups()
    assert [one.group_id for one in failed.value.results[1]] == ["a"]
    assert list(failed.value.errors) == [2]


def test_a_question_that_no_broker_answers_raises_the_error_of_the_first(pair: Pair) -> None:
    pair.speak(ListTransactions=(0, -1))
    with administering(pair) as admin, pytest.raises(UnsupportedByBroker, match="ListTransactions"):
        admin.list_transactions()


def test_a_shard_that_loads_is_asked_again(pair: Pair) -> None:
    loading = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    answers = [groups("b"), loading, loading]
    pair.serve("ListGroups", lambda _: groups("a"), lambda _: answers.pop())
    with administering(pair, timeout_ms=10_000) as admin:
        assert [one.group_id for one in admin.list_groups()] == ["a", "b"]
    assert len(pair.asked("ListGroups")) == 4


def test_a_listing_begins_again_where_a_broker_leaves_meanwhile(pair: Pair) -> None:
    """The groups of the second broker may have moved to the first one after that had answered."""
    has_left = False

    def known(_: Message) -> MetadataResponse:
        return metadata(nodes=[(1, pair.one.port), *([] if has_left else [(2, pair.two.port)])])

    def gone(_: Message) -> None:
        nonlocal has_left
        has_left = True

    pair.serve("Metadata", known)
    pair.serve("ListGroups", lambda _: groups("a", "b") if has_left else groups("a"), gone)
    with administering(pair, timeout_ms=10_000) as admin:
        assert [one.group_id for one in admin.list_groups()] == ["a", "b"]


def test_coordinators_without_a_leader_are_named(pair: Pair) -> None:
    def known(request: Message) -> MetadataResponse:
        assert isinstance(request, MetadataRequest)
        told = metadata(nodes=[(1, pair.one.port), (2, pair.two.port)])
        partitions = [
            MetadataResponsePartition(partition_index=number, leader_id=leader)
            for number, leader in enumerate((1, -1, 2, -1))
        ]
        names = [topic.name for topic in request.topics or () if topic.name == "__consumer_offsets"]
        told.topics = [MetadataResponseTopic(name=name, partitions=partitions) for name in names]
        return told

    pair.serve("Metadata", known)
    with administering(pair) as admin, pytest.raises(ItemsFailed, match="2 of 4 partitions") as failed:
        admin.list_groups()
    assert list(failed.value.errors) == ["__consumer_offsets"]
    assert sorted(failed.value.results) == [1, 2]


def test_a_coordinator_that_hangs_does_not_hide_the_groups_of_the_others(pair: Pair) -> None:
    hang(pair.two)
    answer = DescribeGroupsResponse(groups=[DescribedGroup(group_id="a", group_state="Empty")])
    pair.serve("DescribeGroups", lambda _: answer)
    with administering(pair) as admin, pytest.raises(ItemsFailed) as failed:
        admin.describe_groups(["b", "a"])
    assert list(failed.value.results) == ["a"]
    assert str(failed.value.errors["b"]).endswith("the coordinator of 'b', does not answer")


def test_a_read_that_any_broker_answers_goes_to_another_one_after_a_second(pair: Pair) -> None:
    is_over, asked = Event(), []

    def answered(request: Message) -> DescribeClusterResponse | None:
        asked.append(request)
        if len(asked) == 1:
            is_over.wait(60)
            return None
        return DescribeClusterResponse(cluster_id="c")

    pair.serve("DescribeCluster", answered)
    with administering(pair, timeout_ms=60_000) as admin:
        admin.list_groups()  # both are connected
        assert admin.describe_cluster().cluster_id == "c"
        assert admin.describe_cluster().cluster_id == "c"  # the silent one is not asked again
        is_over.set()
    assert len(asked) == 3
