"""The honest client: one connection produces 1 KB, another fetches 1 KB, each 200 times a second, whether
answers come or not.

A request is sent when it is due, also while earlier ones are unanswered, so that a stall of the broker
counts for every request that it delays. A latency is the time from the send to the last byte of the
answer.
"""

import multiprocessing
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from benchmarks import raw
from benchmarks.attack.target import connect

RATE_PER_S = 200
VALUE_BYTES = 1024
PATIENCE_S = 120.0
START_TIMEOUT_S = 60.0
WARM_UP_S = 2.0


@dataclass(slots=True)
class Answered:
    """One request: when it was sent on the monotonic clock, and how long its answer took."""

    sent_s: float
    latency_ms: float


@dataclass(slots=True)
class _Asking:
    """One connection: the requests without a reply, and the bytes of an incomplete reply."""

    connection: socket.socket
    sent_s: deque[float] = field(default_factory=deque)
    received: bytearray = field(default_factory=bytearray)

    def send(self, frame: bytes) -> None:
        self.sent_s.append(time.monotonic())
        self.connection.sendall(frame)

    def receive(self, answers: list[Answered]) -> bytes:
        """The last whole answer that has come, b"" if there is none yet."""
        more = self.connection.recv(1 << 16)
        if not more:
            raise ConnectionError("the broker closed the connection of the honest client")
        now_s = time.monotonic()
        self.received += more
        last = b""
        while len(self.received) >= 4 and len(self.received) >= 4 + (
            size := struct.unpack_from(">i", self.received)[0]
        ):
            last = bytes(self.received[: 4 + size])
            del self.received[: 4 + size]
            sent_s = self.sent_s.popleft()
            answers.append(Answered(sent_s, (now_s - sent_s) * 1000))
        return last


def run(host: str, port: int, topic: str, control: Connection) -> None:
    """The process of the honest client: sends "ready" once it is served, works until it is told to stop,
    then sends its answers.
    """
    answers: list[Answered] = []
    producing, fetching = _Asking(connect(host, port)), _Asking(connect(host, port))
    frame = raw.produce_request(topic, value_bytes=VALUE_BYTES)
    poll = select.poll()
    poll.register(producing.connection, select.POLLIN)
    poll.register(fetching.connection, select.POLLIN)
    poll.register(control, select.POLLIN)
    began_s = time.monotonic()
    high_watermark, ticks = 0, 0
    is_ready = is_stopping = False
    while not is_stopping or producing.sent_s or fetching.sent_s:
        now_s = time.monotonic()
        due_s = began_s + ticks / RATE_PER_S
        if now_s >= due_s and not is_stopping:
            ticks += 1
            producing.send(frame)
            if high_watermark:
                fetching.send(raw.fetch_request(topic, offset=high_watermark - 1, max_bytes=VALUE_BYTES))
            continue
        waiting = [asking.sent_s[0] for asking in (producing, fetching) if asking.sent_s]
        if waiting and now_s - min(waiting) > PATIENCE_S:
            raise RuntimeError(f"the honest client had no answer for {PATIENCE_S:.0f} s")
        for descriptor, _ in poll.poll(max(0.0, due_s - now_s) * 1000 if not is_stopping else 1000):
            if descriptor == producing.connection.fileno():
                if reply := producing.receive(answers):
                    _check(raw.produce_error(reply, topic))
                    if not high_watermark and not fetching.sent_s:
                        fetching.send(raw.fetch_request(topic, offset=0, max_bytes=VALUE_BYTES))
            elif descriptor == fetching.connection.fileno():
                if reply := fetching.receive(answers):
                    _, error, high_watermark = struct.unpack_from(
                        ">ihq", reply, 4 + 4 + 4 + 4 + 2 + len(topic) + 4
                    )
                    _check(error)
                    if not is_ready:
                        is_ready = True
                        control.send("ready")
            elif not is_stopping:
                control.recv()
                is_stopping = True
    control.send(answers)


class Running:
    """The honest client in a process of its own."""

    def __init__(self, control: Connection) -> None:
        self._control = control

    def stop(self) -> list[Answered]:
        """Its answers; it has stopped then."""
        self._control.send("stop")
        if not self._control.poll(PATIENCE_S):
            raise RuntimeError("the honest client does not stop")
        answers: list[Answered] = self._control.recv()
        return answers


@contextmanager
def running(host: str, port: int, topic: str) -> Iterator[Running]:
    """The honest client at work, from its second second on until the end of the block."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=run, args=(host, port, topic, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(START_TIMEOUT_S):
            raise RuntimeError("the honest client is not served")
        ours.recv()
        time.sleep(WARM_UP_S)
        yield Running(ours)
    finally:
        process.kill()
        process.join()


def _check(error: int) -> None:
    if error:
        raise RuntimeError(f"the honest client was answered with error {error}")
