"""A real Kafka whose transaction markers can be held: the source of the table of `transaction_cells`.

The inter-broker listener is advertised at the address of a relay, so the markers that the coordinator
sends to its own broker pass here:

    coordinator ── WriteTxnMarkers ──► Relay (holds them while it is told to) ──► the broker's listener

`python -m tests.compatibility.transaction_kafka` writes the table.
"""

import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sparklog.effects import FileSlice
from sparklog.wire.header import decode_reply, encode_request
from sparklog.wire.schema import Message
from tests.compatibility.kafka_broker import RealKafka, free_ports
from tests.compatibility.transaction_cells import (
    TABLE,
    Cell,
    Outcome,
    cells,
    outcome,
    prepare,
    set_level,
    written,
)

WRITE_TXN_MARKERS = 27
PATIENCE_S = 30


class Relay:
    """Passes frames of one listener on to another, but markers only while `may_pass` is set."""

    def __init__(self, port: int, target: int) -> None:
        self.may_pass = threading.Event()
        self.may_pass.set()
        self._target = target
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [client, server]
                threading.Thread(target=self._frames, args=(client, server), daemon=True).start()
                threading.Thread(target=self._bytes, args=(server, client), daemon=True).start()

    def _frames(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError), source.makefile("rb") as requests:
            while len(size := requests.read(4)) == 4:
                frame = requests.read(int.from_bytes(size, "big"))
                if int.from_bytes(frame[:2], "big") == WRITE_TXN_MARKERS:
                    self.may_pass.wait()
                sink.sendall(size + frame)
        self._shut(sink)

    def _bytes(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while octets := source.recv(1 << 16):
                sink.sendall(octets)
        self._shut(sink)

    @staticmethod
    def _shut(sink: socket.socket) -> None:
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End every connection."""
        self.may_pass.set()
        for one in (self._listener, *self._sockets):
            self._shut(one)
            one.close()


class KafkaSpeaker:
    """Requests of our own codec to a broker, one at a time."""

    def __init__(self, port: int, relay: Relay | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._replies = self._socket.makefile("rb")
        self._relay = relay
        self._correlation_id = 0

    def ask(self, request: Message, version: int, reply: type[Message]) -> Message:
        self._correlation_id += 1
        chunks = encode_request(request, version, self._correlation_id, "cells")
        self._socket.sendall(
            b"".join(chunk.read() if isinstance(chunk, FileSlice) else bytes(chunk) for chunk in chunks)
        )
        size = int.from_bytes(self._replies.read(4), "big")
        correlation_id, message = decode_reply(reply, version, self._replies.read(size))
        assert correlation_id == self._correlation_id
        return message

    def hold(self, *, is_held: bool) -> None:
        assert self._relay is not None
        if is_held:
            self._relay.may_pass.clear()
        else:
            self._relay.may_pass.set()

    def close(self) -> None:
        """Disconnect."""
        self._replies.close()
        self._socket.close()


@contextmanager
def kafka_speaker(root: Path) -> Iterator[KafkaSpeaker]:
    """A Kafka with its coordinators ready, and the connection to it."""
    inter_broker, relayed, client, controller = free_ports(4)
    more = {
        "listeners": f"PLAINTEXT://127.0.0.1:{client},INTERNAL://127.0.0.1:{inter_broker},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{client},INTERNAL://127.0.0.1:{relayed}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "inter.broker.listener.name": "INTERNAL",
        "transaction.state.log.num.partitions": 1,
        "offsets.topic.num.partitions": 1,
    }
    kafka = RealKafka(root, more)
    kafka.bootstrap_servers = f"127.0.0.1:{client}"
    relay = Relay(relayed, inter_broker)
    try:
        with kafka.running():
            speaker = KafkaSpeaker(client, relay)
            prepare(speaker)
            yield speaker
            speaker.close()
    finally:
        relay.close()


def measured(root: Path) -> dict[Cell, Outcome]:
    """Kafka's outcome of every cell."""
    found: dict[Cell, Outcome] = {}
    with kafka_speaker(root) as speaker:
        for cluster in (2, 1):
            set_level(speaker, cluster)
            for cell in cells(cluster):
                found[cell] = outcome(speaker, cell, f"id-{len(found)}")
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        TABLE.write_text(written(measured(Path(directory))))
