"""The text form of a run: a header, then one fault a line. `read` parses the text that `written` returns.

    # A comment.
    world=raft seed=17 nodes=1,2,3,4 voters=1,2,3 core=1,2 core-ms=8000 healed-ms=16000 end-ms=24000
    t=1200 for=300 kill 2
    t=1500 for=3000 cut 1 to 2,3
    t=1600 for=900 slow 3 to 1 by 400

Times are virtual milliseconds since the start.
"""

from enum import Enum
from typing import NamedTuple

from sparklog.model import NodeId


class Kind(Enum):
    """The effect of a fault on `nodes`, or on the paths from `nodes` to `to`, by `amount`."""

    KILL = "kill"  # the process; the page cache stays
    STOP = "stop"  # the process, cleanly
    POWER = "power"  # the machine; its connections become half-open
    LOSE = "lose"  # the machine, which comes back with an empty disk
    OLDER = "older"  # at the end, the disk goes back to its state at the beginning
    PAUSE = "pause"
    CUT = "cut"  # one way
    SPLIT = "split"  # both ways
    REFUSE = "refuse"  # connections
    SLOW = "slow"  # by so many milliseconds a packet
    DRIFT = "drift"  # the rate of the clock is wrong by so many millionths
    STEP = "step"  # the wall clock, once, by so many milliseconds
    FILL = "fill"  # the disk
    HANG = "hang"  # syncs do not return
    ADD = "add"  # the operator wants the node to be a voter, from now on
    REMOVE = "remove"  # the operator wants the node to be no voter, from now on


class Fault(NamedTuple):
    """A fault that is on in `[at_ms, at_ms + for_ms)`."""

    at_ms: int
    for_ms: int
    kind: Kind
    nodes: tuple[NodeId, ...]
    to: tuple[NodeId, ...] = ()
    amount: int = 0

    def __str__(self) -> str:
        to = f" to {_joined(self.to)}" if self.to else ""
        by = f" by {self.amount}" if self.amount else ""
        return f"t={self.at_ms} for={self.for_ms} {self.kind.value} {_joined(self.nodes)}{to}{by}"


class Scenario(NamedTuple):
    """A whole run. From `core_ms` on there is no fault among the nodes of `core`, from `healed_ms` on none at
    all.
    """

    world: str
    seed: int
    nodes: tuple[NodeId, ...]
    voters: tuple[NodeId, ...]
    core: tuple[NodeId, ...]
    core_ms: int
    healed_ms: int
    end_ms: int
    faults: tuple[Fault, ...]


def written(scenario: Scenario, comment: str = "") -> str:
    """The scenario as text."""
    header = (
        f"world={scenario.world} seed={scenario.seed} nodes={_joined(scenario.nodes)}"
        f" voters={_joined(scenario.voters)} core={_joined(scenario.core)}"
        f" core-ms={scenario.core_ms} healed-ms={scenario.healed_ms} end-ms={scenario.end_ms}"
    )
    lines = [*(f"# {line}" for line in comment.splitlines()), header, *map(str, scenario.faults)]
    return "\n".join(lines) + "\n"


def read(text: str) -> Scenario:
    """The scenario of a text. Raises ValueError or KeyError for any other text."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    header = dict(word.split("=", 1) for word in lines[0].split())
    return Scenario(
        header["world"],
        int(header["seed"]),
        _nodes(header["nodes"]),
        _nodes(header["voters"]),
        _nodes(header["core"]),
        int(header["core-ms"]),
        int(header["healed-ms"]),
        int(header["end-ms"]),
        tuple(map(_fault, lines[1:])),
    )


def _fault(line: str) -> Fault:
    at, duration, kind, nodes, *rest = line.split()
    more = dict(zip(rest[::2], rest[1::2], strict=True))
    if not at.startswith("t=") or not duration.startswith("for=") or more.keys() - {"to", "by"}:
        raise ValueError(f"not a fault: {line}")
    return Fault(
        int(at[2:]),
        int(duration[4:]),
        Kind(kind),
        _nodes(nodes),
        _nodes(more["to"]) if "to" in more else (),
        int(more.get("by", 0)),
    )


def _joined(nodes: tuple[NodeId, ...]) -> str:
    return ",".join(map(str, nodes))


def _nodes(text: str) -> tuple[NodeId, ...]:
    return tuple(NodeId(int(node)) for node in text.split(","))
