"""Members of groups in processes of their own, by six ways that clients have to be one; and what is told
of them, to wait for.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import NamedTuple, Self

import pytest

from tests.tools import PROJECT, require_command

PATIENCE_S = 30.0
KAFKAJS = PROJECT / ".node" / "node_modules"


class Way(NamedTuple):
    """A library and its settings; `quick` are settings that shorten the wait for the dead, on a broker
    that allows it.
    """

    library: str
    settings: dict[str, object]
    quick: dict[str, object]
    is_cooperative: bool = False
    static: str = "group.instance.id"


_LIBRDKAFKA_QUICK: dict[str, object] = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300}
_PYTHON_QUICK: dict[str, object] = {"session_timeout_ms": 1500, "heartbeat_interval_ms": 300}
WAYS = {
    "confluent-classic": Way("confluent", {}, _LIBRDKAFKA_QUICK),
    "confluent-cooperative": Way(
        "confluent",
        {"partition.assignment.strategy": "cooperative-sticky"},
        _LIBRDKAFKA_QUICK,
        is_cooperative=True,
    ),
    "confluent-consumer": Way("confluent", {"group.protocol": "consumer"}, {}, is_cooperative=True),
    "aiokafka": Way("aiokafka", {}, _PYTHON_QUICK, static="group_instance_id"),
    "kafka-python": Way("kafka-python", {}, _PYTHON_QUICK, static="group_instance_id"),
    # It sends heartbeats between its fetches only: one that waits longer than the session costs it its place.
    "kafkajs": Way(
        "kafkajs", {}, {"sessionTimeout": 1500, "heartbeatInterval": 300, "maxWaitTimeInMs": 200}, static=""
    ),
}


_CHANGED = threading.Condition()  # of all members: a wait for several receives each of them


class Member:
    """One process: what it owns now, what it has read, and whether it was ever asked to give a partition
    up.
    """

    def __init__(
        self,
        bootstrap: str,
        way: str,
        group: str,
        *topics: str,
        pattern: str | None = None,
        instance: str | None = None,
        is_quick: bool = True,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        library, given, quick, _, static = WAYS[way]
        asked = {
            "bootstrap": bootstrap,
            "group": group,
            "topics": list(topics) or None,
            "pattern": pattern,
            "settings": given
            | (quick if is_quick else {})
            | ({static: instance} if instance else {})
            | dict(settings or {}),
        }
        self.owned: set[str] = set()
        self.gave_up: set[str] = set()
        self.records: list[tuple[str, int, str]] = []
        self.uncommitted = 0
        self.has_left = False
        self._told: list[str] = []
        self._process = subprocess.Popen(
            _command(library, json.dumps(asked)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=PROJECT,
            env=os.environ | {"NODE_PATH": str(KAFKAJS)},
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def until(self, what: Callable[[Self], object], patience_s: float = PATIENCE_S) -> None:
        """Wait until something is true of this member."""
        with _CHANGED:
            happened = _CHANGED.wait_for(lambda: what(self), patience_s)
            assert happened, f"owns {sorted(self.owned)}, read {len(self.records)}, told {self._told[-20:]}"

    def leave(self) -> None:
        """Have it leave its group, as a program does that ends well."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.until(lambda member: member.has_left)
        self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        """Kill -9."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._listener.join(PATIENCE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with _CHANGED:
                self._hear(line)
                _CHANGED.notify_all()

    def _hear(self, line: str) -> None:
        said = json.loads(line)
        self._told.append(line.strip()[:300])
        self.owned |= set(said.get("assigned", ()))
        for gone in (said.get("revoked"), said.get("lost")):
            self.owned -= set(gone or ())
            self.gave_up |= set(gone or ())
        if "record" in said:
            partition, offset, value = said["record"]
            self.records.append((partition, offset, value))
            self.uncommitted += 1
        elif "committed" in said:
            self.uncommitted = 0
        self.has_left |= "left" in said


def _command(library: str, asked: str) -> list[str]:
    if library != "kafkajs":
        return [sys.executable, "-m", "tests.compatibility.group_member", library, asked]
    if not (KAFKAJS / "kafkajs").is_dir():
        pytest.skip(f"no kafkajs in {KAFKAJS}: `make node` installs it with npm")
    return [require_command("node"), str(PROJECT / "tests" / "compatibility" / "group_member.js"), asked]


def until_shared(members: Iterable[Member], *sizes: int, patience_s: float = PATIENCE_S) -> None:
    """Wait until the members own so many partitions, each partition one owner; the sizes from small to
    large.
    """
    members = list(members)

    def is_shared() -> bool:
        owned = [partition for member in members for partition in member.owned]
        return sorted(len(member.owned) for member in members) == sorted(sizes) and len(owned) == len(
            set(owned)
        )

    with _CHANGED:
        assert _CHANGED.wait_for(is_shared, patience_s), [sorted(member.owned) for member in members]
