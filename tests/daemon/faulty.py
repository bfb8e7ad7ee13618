"""A daemon whose broker has a fault, as a program: `crash` breaks on its first bytes, `hang` never
finishes its stop.
"""

import sys

from sparklog.effects import Effect
from sparklog.model import Instant, SessionId
from sparklog_server.config.load import load
from sparklog_server.daemon.logs import TraceLog
from sparklog_server.daemon.server import Server
from sparklog_server.disk.os_disk import OsDisk
from tests.daemon.echo import Echo


class Crashing(Echo):
    def receive(self, session_id: SessionId, size: int, now: Instant) -> list[Effect]:
        raise AssertionError("the high watermark moved back")


class Hanging(Echo):
    def stop(self, now: Instant) -> list[Effect]:
        return []


if __name__ == "__main__":
    faulty = {"crash": Crashing, "hang": Hanging}[sys.argv[1]]
    settings = load(None, ["listeners=PLAINTEXT://127.0.0.1:0"]).settings
    sys.exit(
        Server(
            settings,
            OsDisk(),
            lambda *_: faulty(),
            TraceLog(sys.stderr),
            connections_max=settings.connections.max_connections,
        ).run()
    )
