"""The nodes with the states asked of them, what is left on each, and the partitions that move."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.responses import Response

from sparklog.client.admin.admin import Admin
from sparklog.errors import SparklogError
from sparklog.model import NodeId, TopicPartition
from sparklog_server.console.ask import DIGITS_MAX, Ask, Refused, get, post
from sparklog_server.operations.moves import (
    ClusterFacts,
    Remaining,
    behind_of,
    cancel,
    facts_of,
    leading_on,
    reassigning,
    remaining_on,
)
from sparklog_server.operations.node_states import asked_nodes, require_room, require_voter

if TYPE_CHECKING:
    from sparklog.client.admin.cluster import Quorum
    from sparklog.client.admin.configs import BrokerState

SHOWN_MAX: Final = 100
"""Partitions of a table; the others are counted."""
STATES: Final["dict[str, tuple[BrokerState, str]]"] = {
    "cordon": ("cordoned", "it gets no new replicas"),
    "drain": ("drained", "its leaderships move to other nodes"),
    "decommission": ("decommissioned", "its replicas move to other nodes; stop it when none is left"),
    "activate": ("active", "it takes replicas and leaderships again"),
}
"""By the act of a form: the state, and what follows."""


class NodeRow(NamedTuple):
    """A node; one that is not registered is listed by partitions. `asked` is None where the cluster has no
    such states, as Kafka's. `left` says what is still there of a node that is to have less, or what follows.
    """

    node: NodeId
    address: str
    rack: str | None
    is_registered: bool
    is_fenced: bool
    asked: str | None
    leaders: int
    replicas: int
    left: str


class MoveRow(NamedTuple):
    """A partition that is being reassigned."""

    at: TopicPartition
    replicas: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]
    behind: int
    reason: str
    is_stuck: bool


class LeftRow(NamedTuple):
    """What is still on a node that is drained or decommissioned."""

    node: NodeId
    remaining: Remaining


async def nodes(ask: Ask) -> Response:
    """All nodes, what is left on those that leave, and all moves."""
    found = await ask.cluster.soon("nodes", facts_of)
    facts = found.result
    moves = move_rows(facts)
    left_on = left_by_node(facts)
    left = [LeftRow(node, one) for node, remaining in left_on.items() for one in remaining]
    return ask.page(
        "nodes.html",
        rows=node_rows(facts, left_on),
        moves=moves[:SHOWN_MAX],
        more_moves=max(len(moves) - SHOWN_MAX, 0),
        left=left[:SHOWN_MAX],
        more_left=max(len(left) - SHOWN_MAX, 0),
        age_s=found.age_s,
    )


def left_by_node(facts: ClusterFacts) -> dict[NodeId, list[Remaining]]:
    """What is left on the nodes that are drained or decommissioned, by id."""
    return {
        node: (leading_on if state == "drained" else remaining_on)(facts, node)
        for node, state in sorted(facts.states.items())
        if state in ("drained", "decommissioned")
    }


def node_rows(facts: ClusterFacts, left_on: Mapping[NodeId, Sequence[Remaining]]) -> list[NodeRow]:
    """The nodes that are registered, and those that partitions list, by id."""
    registered = {one.node_id: one for one in facts.nodes}
    held = Counter(node for one in facts.partitions.values() for node in one.replicas)
    led = Counter(one.leader for one in facts.partitions.values())
    rows = []
    for node in sorted(registered.keys() | held.keys()):
        one = registered.get(node)
        rows.append(
            NodeRow(
                node,
                f"{one.host}:{one.port}" if one is not None else "–",
                one.rack if one is not None else None,
                is_registered=one is not None,
                is_fenced=one is not None and one.is_fenced,
                asked=facts.states.get(node),
                leaders=led[node],
                replicas=held[node],
                left=_left_text(facts.states.get(node), left_on.get(node, ())),
            )
        )
    return rows


def _left_text(state: str | None, left: Sequence[Remaining]) -> str:
    if state not in ("drained", "decommissioned"):
        return ""
    if not left:
        return (
            "it leads nothing"
            if state == "drained"
            else "it has no replicas: the cluster forgets it once it has stopped"
        )
    what = "leadership" if state == "drained" else "replica"
    text = f"{len(left)} {what}{'s' * (len(left) > 1)} left"
    stuck = sum(one.is_stuck for one in left)
    return f"{text}; {stuck} cannot leave" if stuck else text


def move_rows(facts: ClusterFacts) -> list[MoveRow]:
    """The partitions that are being reassigned, in order."""
    rows = []
    for one in reassigning(facts):
        moving = facts.reassignments[one.at]
        target = tuple([node for node in moving.replicas if node not in moving.removing])
        rows.append(
            MoveRow(
                one.at,
                target,
                moving.adding,
                moving.removing,
                behind_of(facts, one.at),
                one.reason,
                one.is_stuck,
            )
        )
    return rows


async def change_state(ask: Ask) -> Response:
    """Ask a state of a node."""
    act, text = ask.field("act"), ask.required("node", "the node")
    if act not in STATES:
        raise Refused("choose one of the buttons")
    if not text.isdecimal() or len(text) > DIGITS_MAX:
        raise Refused(f"{text[:40]!r} is no node id", "node")
    if act == "decommission" and not ask.field("sure"):
        raise Refused("tick that all replicas are to move away", "node")
    state, what = STATES[act]
    node = NodeId(int(text))

    def changed(admin: Admin) -> None:
        facts = facts_of(admin)
        asked = asked_nodes(facts, [node])
        if state != "active":
            require_room(facts, asked)
        if state == "decommissioned":
            require_voter(_quorum(admin), asked)
        admin.set_broker_state(node, state)

    await ask.cluster.change(changed)
    return ask.moved("/nodes", f"Node {node} is {state}: {what}.")


def _quorum(admin: Admin) -> "Quorum | None":
    try:
        return admin.describe_quorum()
    except SparklogError:
        return None


async def cancel_move(ask: Ask) -> Response:
    """Give one partition, or all, its original replicas."""
    topic, number = ask.either("topic"), ask.either("partition")
    chosen = None
    if topic:
        if not number.isdecimal() or len(number) > DIGITS_MAX:
            raise Refused(f"{number[:40]!r} is no partition")
        chosen = [TopicPartition(topic, int(number))]
    outcomes = await ask.cluster.change(lambda admin: cancel(admin, chosen))
    if refused := [error for error in outcomes.values() if error is not None]:
        raise refused[0]
    count = len(outcomes)
    return ask.moved("/nodes", f"{count} reassignment{'' if count == 1 else 's'} cancelled.")


ROUTES = [
    get("/nodes", nodes),
    post("/nodes", change_state, form=nodes),
    post("/nodes/cancel", cancel_move, form=nodes),
]
