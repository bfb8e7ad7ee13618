"""The plan that balances partitions: nothing is lost, racks are kept, and a second plan has nothing to do."""

from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from sparklog.model import NodeId, TopicPartition
from sparklog_server.operations.balance import (
    BalancedNode,
    PlacedPartition,
    PlannedMove,
    copying_s,
    loads_of,
    planned,
    resized,
)


def nodes_of(racks: Sequence[str | None], closed: Sequence[int] = ()) -> list[BalancedNode]:
    return [
        BalancedNode(NodeId(number), rack, takes_replicas=number not in closed)
        for number, rack in enumerate(racks)
    ]


def placed(*replicas: Sequence[int], size: int = 100) -> list[PlacedPartition]:
    return [
        PlacedPartition(TopicPartition("t", index), tuple(map(NodeId, nodes)), size)
        for index, nodes in enumerate(replicas)
    ]


def moved(partitions: Sequence[PlacedPartition], moves: Sequence[PlannedMove]) -> list[PlacedPartition]:
    after = {move.at: move.after for move in moves}
    return [one._replace(replicas=after.get(one.at, one.replicas)) for one in partitions]


def test_an_added_node_gets_its_share_of_bytes_replicas_and_leaderships() -> None:
    nodes = nodes_of([None] * 3)
    partitions = placed(*[(0, 1)] * 15, *[(1, 0)] * 15)
    after = moved(partitions, planned(nodes, partitions))
    loads = loads_of(nodes, [(one.replicas, one.bytes) for one in after])
    assert {load.replicas for load in loads.values()} <= {19, 20, 21}
    assert max(load.leaders for load in loads.values()) <= 11


def test_a_node_that_takes_no_replicas_neither_gets_nor_gives_any() -> None:
    nodes = nodes_of([None] * 4, closed=[0, 3])
    partitions = placed(*[(0, 1)] * 20)
    after = moved(partitions, planned(nodes, partitions))
    loads = loads_of(nodes, [(one.replicas, one.bytes) for one in after])
    assert (loads[NodeId(0)].replicas, loads[NodeId(3)].replicas) == (20, 0)
    assert loads[NodeId(2)].replicas in (9, 10, 11)


def test_replicas_in_one_rack_are_spread_over_the_racks_that_have_none() -> None:
    nodes = nodes_of(["a", "a", "b"])
    (move,) = planned(nodes, placed((0, 1)))
    assert set(move.after) in ({0, 2}, {1, 2})
    assert (move.bytes, move.added) == (100, (2,))


def test_an_order_of_replicas_costs_nothing() -> None:
    moves = planned(nodes_of([None] * 2), placed((0, 1), (0, 1), (0, 1), (0, 1)))
    assert {(move.after, move.bytes) for move in moves} == {((1, 0), 0)}


def test_a_node_that_is_gone_is_replaced_where_the_nodes_suffice() -> None:
    assert [one.after for one in planned(nodes_of([None] * 3), placed((0, 9)))] == [(0, 1)]
    assert planned(nodes_of([None] * 2), placed((0, 1, 9), (9,))) == []
    (partition,) = placed((9, 0))
    (move,) = resized(nodes_of([None] * 3), [partition], {partition.at: 3})
    assert sorted(move.after) == [0, 1, 2]


def test_nothing_moves_where_nothing_can() -> None:
    assert planned(nodes_of([None]), placed((0,), (0,))) == []
    assert planned(nodes_of([None] * 2, closed=[0, 1]), placed((0, 1))) == []
    assert planned([], []) == []


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[BalancedNode], list[PlacedPartition]]:
    count = draw(st.integers(1, 7))
    racks = draw(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=count, max_size=count))
    nodes = nodes_of(racks, closed=draw(st.lists(st.integers(0, count - 1), max_size=2)))
    partitions = []
    for index in range(draw(st.integers(0, 30))):
        replicas = draw(st.permutations(range(count)))[: draw(st.integers(1, count))]
        size = draw(st.integers(0, 1_000))
        partitions.append(PlacedPartition(TopicPartition("t", index), tuple(map(NodeId, replicas)), size))
    return nodes, partitions


@given(clusters())
def test_a_plan_keeps_factors_and_racks_and_moves_to_open_nodes_only(
    cluster: tuple[list[BalancedNode], list[PlacedPartition]],
) -> None:
    nodes, partitions = cluster
    able = {one.node_id for one in nodes if one.takes_replicas}
    racks = {one.node_id: one.rack for one in nodes}
    moves = planned(nodes, partitions)
    for move in moves:
        assert len(set(move.after)) == len(move.after) == len(move.before)
        assert set(move.added) <= able
        assert set(move.before) - set(move.after) <= able
        assert len({racks[one] for one in move.after}) >= len({racks[one] for one in move.before})
    for _ in range(5):  # what has just moved may move again in a later plan
        partitions = moved(partitions, moves)
        moves = planned(nodes, partitions)
        if not moves:
            break
    assert sum(move.bytes for move in moves) == 0


def test_a_greater_factor_takes_the_emptiest_node_of_a_rack_that_has_none() -> None:
    nodes = nodes_of(["a", "a", "b", "b"])
    partitions = placed((0,), (3,), (1, 3))
    moves = resized(nodes, partitions, {partitions[0].at: 3})
    assert [(one.after, one.bytes) for one in moves] == [((0, 2, 1), 200)]


def test_a_smaller_factor_gives_up_closed_nodes_and_shared_racks_and_keeps_the_leader() -> None:
    nodes = nodes_of(["a", "a", "b", "c"], closed=[3])
    (partition,) = placed((0, 1, 2, 3))
    factors = {partition.at: 3}
    assert resized(nodes, [partition], factors)[0].after == (0, 1, 2)
    assert resized(nodes, [partition], {partition.at: 2})[0].after == (0, 2)
    assert resized(nodes, [partition], {partition.at: 1})[0].after == (0,)


def test_a_factor_ends_at_the_nodes_there_are() -> None:
    (partition,) = placed((0,))
    assert resized(nodes_of([None] * 3, closed=[2]), [partition], {partition.at: 3})[0].after == (0, 1)
    assert resized(nodes_of([None], closed=[0]), [partition], {partition.at: 3}) == []


def test_a_cluster_that_grows_from_one_node_gets_factor_and_balance_in_one_plan() -> None:
    nodes = nodes_of([None] * 3)
    partitions = placed(*[(0,)] * 12)
    factors = {one.at: 2 for one in partitions[:6]}
    moves = resized(nodes, partitions, factors, is_balanced=True)
    after = moved(partitions, moves)
    assert [len(one.replicas) for one in after] == [2] * 6 + [1] * 6
    loads = loads_of(nodes, [(one.replicas, one.bytes) for one in after])
    assert all(5 <= load.replicas <= 7 and 3 <= load.leaders <= 5 for load in loads.values())


def test_the_time_of_a_plan_is_that_of_the_busiest_node() -> None:
    partitions = placed((0,), (1,), (2,))
    moves = [PlannedMove(one.at, one.replicas, (NodeId(3),), one.bytes) for one in partitions]
    leaders = {one.at: one.replicas[0] for one in partitions}
    assert copying_s(moves, leaders, rate=100) == 3.0
    assert copying_s([], leaders, rate=100) == 0.0


def test_bytes_and_replicas_are_both_spread_though_few_partitions_have_all_bytes() -> None:
    nodes = nodes_of([None] * 4)
    partitions = [
        one._replace(bytes=3_500 if index < 20 else 0)
        for index, one in enumerate(placed(*[(0, 1, 2), (1, 2, 0), (2, 0, 1)] * 200))
    ]
    moves = planned(nodes, partitions)
    after = moved(partitions, moves)
    loads = loads_of(nodes, [(one.replicas, one.bytes) for one in after])
    assert all(400 <= load.replicas <= 500 for load in loads.values())
    assert all(40_000 <= load.bytes <= 70_000 for load in loads.values())
    assert planned(nodes, after) == []


def test_a_plan_spreads_sizes_of_every_kind_at_once() -> None:
    sizes = Random(3)
    nodes = nodes_of([None] * 4)
    partitions = [
        one._replace(bytes=int(sizes.expovariate(1e-7)))
        for one in placed(*[(0, 1, 2), (1, 2, 0), (2, 0, 1)] * 200)
    ]
    after = moved(partitions, planned(nodes, partitions))
    loads = loads_of(nodes, [(one.replicas, one.bytes) for one in after])
    mean = sum(load.bytes for load in loads.values()) / 4
    assert all(0.8 * mean < load.bytes < 1.2 * mean for load in loads.values())
    assert all(400 <= load.replicas <= 500 for load in loads.values())
    assert planned(nodes, after) == []
