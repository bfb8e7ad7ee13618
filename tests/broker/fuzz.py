"""Fuzzing of a broker's state: long sequences of plausible requests, to one broker in virtual time.

    python -m tests.broker.fuzz --requests 1000000 --seed 7
    python -m tests.broker.fuzz                              another seed each time, until interrupted

Each history has a seed of its own: a new broker, a few connections, `REQUESTS` requests over all APIs that
are served, pauses, disconnections, a wall clock that steps, restarts and power cuts. The broker must
continue: it raises nothing, every shard stays readable, every request is answered or its connection closed.
A finding is shortened and printed as a file for the corpus (`fuzz_corpus/`), and the exit code is 1.
"""

import argparse
import gc
import math
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from sparklog.kernels import codec
from sparklog.wire.api_keys import API_BY_KEY
from sparklog.wire.header import decode_request_header, encode_request
from sparklog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from sparklog.wire.schema import Message, program
from sparklog_server.simulation.cluster import SimulatedConnection
from tests.broker.imagined import Imagination
from tests.broker.world import World

CORPUS = Path(__file__).parent / "fuzz_corpus"
REQUESTS = 1_000
CONNECTIONS = 4
SETTINGS = {
    "log.dirs": "/data,/other",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10000",
    "log.retention.check.interval.ms": "60000",
    "sparklog.partitions.max": "200",
}
VARIED = (
    {"transaction.partition.verification.enable": "false"},
    {"sparklog.ack.flush": "never"},
    {"producer.id.expiration.ms": "5000", "transactional.id.expiration.ms": "20000"},
    {"log.message.timestamp.type": "LogAppendTime", "log.cleanup.policy": "compact"},
    {"offsets.topic.segment.bytes": "1048576", "transaction.state.log.segment.bytes": "1048576"},
    {"auto.create.topics.enable": "false", "group.max.size": "1"},
    {"transaction.two.phase.commit.enable": "true"},
)
"""Settings of which a history has each with some chance."""
PAUSES_MS = (0, 0, 0, 0, 0, 0, 1, 1, 5, 20, 100)
LONG_PAUSES_MS = (1_000, 10_000, 60_000, 3_600_000)
ANSWERED_WITHIN_MS = 120_000
SHORTENED_FOR_S = 120
TOLD_EVERY_S = 60
BAD_EVENTS = ("coordinator-load-failed", "coordinator-behind-log")
"""What a sequence of requests may not bring about, though the broker would go on."""


class Event(NamedTuple):
    """Something that happens to the broker: `send` (a connection and a frame), `wait` and `wall` (ms),
    `drop` (a connection), `stop`, `kill`, `cut` (a restart after each)."""

    kind: str
    number: int = 0
    frame: bytes = b""

    def __str__(self) -> str:
        return f"{self.kind} {self.number} {self.frame.hex()}".rstrip()


class Finding(Exception):
    """A violated property. `where` is the same for the same fault."""

    def __init__(self, where: str, told: str) -> None:
        super().__init__(told)
        self.where = where


class Stage:
    """A broker to which events happen."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        varied = {key: value for some in VARIED if random.random() < 0.2 for key, value in some.items()}
        self._world = World(seed, **SETTINGS, **varied)
        self._clients: list[SimulatedConnection | None] = [None] * CONNECTIONS
        self._seen = 0
        self._started()

    def _started(self) -> None:
        self._clients = [None] * CONNECTIONS
        self._world.node.start()
        self._world.settle(5_000)
        if not self._world.node.running.is_ready:
            raise Finding("start", "the broker does not start")

    def client(self, index: int) -> SimulatedConnection:
        """A connection, made anew if it was closed."""
        found = self._clients[index]
        if found is None or found.is_closed:
            found = self._clients[index] = self._world.node.connect()
        return found

    def happen(self, event: Event) -> None:
        """Let an event happen; raises Finding."""
        world, node = self._world, self._world.node
        try:
            match event.kind:
                case "send":
                    client = self.client(event.number)
                    request, version, reply = decoded(event.frame)
                    if not client.is_closed:
                        client.send(request, version, reply)
                case "wait":
                    world.settle(event.number)
                case "wall":
                    world.clock.step_wall(event.number)
                case "drop":
                    node.disconnect(self.client(event.number))
                case _:
                    if event.kind == "stop":
                        node.stop()
                    else:
                        node.kill(is_power_cut=event.kind == "cut")
                    self._started()
        except Finding:
            raise
        except Exception as error:
            raise Finding(place_of(error), "".join(traceback.format_exception(error))) from error
        self._check()

    def _check(self) -> None:
        node = self._world.node
        if node.halted is not None:
            raise Finding(f"halted: {node.halted}", f"halted: {node.halted}")
        for line in node.trace[self._seen :]:
            if line.startswith(BAD_EVENTS):
                raise Finding(line.split()[0], line)
        self._seen = len(node.trace)

    def end(self) -> None:
        """Every request is answered by now, or its connection closed, and the broker still serves, also
        after a restart.
        """
        self.happen(Event("wait", ANSWERED_WITHIN_MS))
        for client in self._clients:
            if client is not None and not client.is_closed and client.owed:
                raise Finding("no answer", f"no answer: {client.owed}")
        self.happen(Event("stop"))
        client = self._world.node.connect()
        versions = ApiVersionsRequest(client_software_name="fuzz", client_software_version="1")
        client.send(versions, 3, ApiVersionsResponse)
        self.happen(Event("wait", 1_000))
        if not client.replies:
            raise Finding("no answer", "the broker does not serve")


def place_of(error: BaseException) -> str:
    """The innermost line of our code, and the exception raised there."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/sparklog" in frame.filename]
    last = frames[-1] if frames else traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} {Path(last.filename).name}:{last.name}"


def decoded(frame: bytes) -> tuple[Message, int, type[Message] | None]:
    """The request in a frame, its version, and the class of its answer."""
    header, body = decode_request_header(frame[4:])
    api = API_BY_KEY[header.api_key]
    request = codec.decode(program(api.request(), header.api_version), body)
    return request, header.api_version, None if getattr(request, "acks", 1) == 0 else api.reply()


def events(imagination: Imagination, stage: Stage, count: int) -> Iterator[Event]:
    """The events of one history; each event is to happen before the next is asked for."""
    random = imagination.random
    asked: dict[SimulatedConnection, list[Message]] = {}
    beginnings = imagination.beginnings()
    for number in range(count):
        request, version, reply = beginnings[number] if number < len(beginnings) else imagination.request()
        index = random.randrange(CONNECTIONS)
        try:
            frame = b"".join(bytes(chunk) for chunk in encode_request(request, version, 1, "fuzz"))  # type: ignore[arg-type]
        except ValueError:
            continue  # such a request cannot be written in this version
        client = stage.client(index)
        if client not in asked:
            asked[client] = []
            client.heard = partial(_heard, imagination, client, asked[client])
        if reply is not None:
            asked[client].append(request)
        yield Event("send", index, frame)
        yield Event("wait", random.choice(PAUSES_MS) if number >= len(beginnings) else 1_000)
        chance = random.random()
        if chance < 0.01:
            yield Event("wait", random.choice(LONG_PAUSES_MS))
        elif chance < 0.015:
            yield Event("drop", random.randrange(CONNECTIONS))
        elif chance < 0.017:
            yield Event("wall", random.choice((-3_600_000, -1, 1, 3_600_000)))
        elif chance < 0.019:
            yield Event(random.choice(("stop", "kill", "cut")))


def _heard(imagination: Imagination, client: SimulatedConnection, asked: list[Message]) -> None:
    imagination.heard(asked[len(client.replies) - 1], client.replies[-1])


def history(seed: int, count: int = REQUESTS) -> Counter[str]:
    """Run one history; raises Finding, with all that happened as `events` of it."""
    happened: list[Event] = []
    counts: Counter[str] = Counter()
    try:
        stage = Stage(seed)
        for event in events(Imagination(Random(seed)), stage, count):
            happened.append(event)
            stage.happen(event)
            counts[event.kind] += 1
        stage.end()
    except Finding as finding:
        finding.add_note(
            "\n".join(
                (f"# {finding.where}", f"seed {seed}", *map(str, shortened(seed, happened, finding.where)))
            )
        )
        raise
    return counts


def replay(seed: int, happened: Sequence[Event]) -> None:
    """Let the events of a file happen; raises Finding."""
    stage = Stage(seed)
    for event in happened:
        stage.happen(event)
    stage.end()


def shortened(seed: int, happened: list[Event], where: str) -> list[Event]:
    """Fewer events that show the same fault."""

    def shows(some: list[Event]) -> bool:
        try:
            replay(seed, some)
        except Finding as finding:
            return finding.where == where
        return False

    return smallest(happened, shows) if shows(happened) else happened


def smallest(happened: list[Event], shows: Callable[[list[Event]], bool]) -> list[Event]:
    """Fewer events that still show the fault, by leaving out halves, quarters and so on, as long as there
    is time.
    """
    deadline = time.monotonic() + SHORTENED_FOR_S
    size = len(happened) // 2
    while size and time.monotonic() < deadline:
        at = len(happened)
        while at > 0 and time.monotonic() < deadline:
            fewer = happened[: max(at - size, 0)] + happened[at:]
            if shows(fewer):
                happened = fewer
            at -= size
        size //= 2
    return happened


def read(text: str) -> tuple[int, list[Event]]:
    """A file of the corpus: comment lines, `seed N`, then an event a line."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = []
    for line in lines[1:]:
        kind, number, *frame = line.split()
        found.append(Event(kind, int(number), bytes.fromhex("".join(frame))))
    return int(lines[0].removeprefix("seed ")), found


def corpus() -> dict[str, tuple[int, list[Event]]]:
    """The sequences on file, by name."""
    return {path.stem: read(path.read_text()) for path in sorted(CORPUS.glob("*.txt"))}


def fuzz(requests: float, seed: int, seconds: float) -> Counter[str]:
    """Run histories until there were so many requests, the time is over or ^C; raises Finding."""
    counts: Counter[str] = Counter()
    until = time.monotonic() + seconds
    told_at = time.monotonic()
    with suppress(KeyboardInterrupt):
        while counts["send"] < requests and time.monotonic() < until:
            counts += history(seed)
            seed += 1
            gc.collect()  # a broker that is gone is a cycle with all its files in it
            if time.monotonic() - told_at > TOLD_EVERY_S:
                told_at = time.monotonic()
                print(f"{counts['send']} requests", flush=True)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--requests", type=float, default=math.inf)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    options = parser.parse_args()
    print(
        f"seed {options.seed}: fuzzing" + (", ^C ends it" if options.seconds == options.requests else ""),
        flush=True,
    )
    try:
        counts = fuzz(options.requests, options.seed, options.seconds)
    except Finding as finding:
        print(f"{finding}\n" + "\n".join(finding.__notes__))
        return 1
    print(f"seed {options.seed}: " + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
