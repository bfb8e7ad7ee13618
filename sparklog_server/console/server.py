"""The console as a process: it listens, prints a line, and serves until a signal or its parent ends."""

import asyncio
import os
import signal
import socket
import threading
from contextlib import suppress
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from sparklog.errors import SparklogError
from sparklog_server.console.ask import Console
from sparklog_server.console.connections import CONNECTIONS_MAX, HEAD_S, Connection
from sparklog_server.console.pages.overview import asked

STOP_S_MAX: Final = 3
_HEADER_BYTES_MAX: Final = 64 << 10
_STDIN: Final = 0


def serve(
    app: ASGIApp,
    console: Console,
    bound: socket.socket,
    *,
    url: str,
    certificate: str | None = None,
    key: str | None = None,
    owner_pid: int | None = None,
) -> int:
    """Serve on a socket that is bound; prints `ready console=<url> pid=<pid>` once it accepts connections."""
    server = _Server(
        uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS_MAX,
            timeout_keep_alive=HEAD_S,
            timeout_graceful_shutdown=STOP_S_MAX,
            h11_max_incomplete_event_size=_HEADER_BYTES_MAX,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        ),
        console,
        url,
    )
    if owner_pid is not None:
        threading.Thread(target=server.stop_with_parent, daemon=True).start()
    # The server stops by a signal, and then sends it again to the handler that was there before.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    try:
        server.run(sockets=[bound])
    finally:
        console.close()
    return 0


class _Server(uvicorn.Server):
    """A server that tells when it is ready, and ends live tails when it stops."""

    def __init__(self, config: uvicorn.Config, console: Console, url: str) -> None:
        super().__init__(config)
        self._console = console
        self._url = url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then print the line."""
        await self._warm()
        await super().startup(sockets)
        print(f"ready console={self._url} pid={os.getpid()}", flush=True)

    async def _warm(self) -> None:
        """Ask for what the first page shows, so that it waits for no import, and begin with the samples."""
        own = self._console.own
        if own is not None:
            own.samples.follow(own.cluster, is_endless=True)
            with suppress(SparklogError):
                await asyncio.gather(*asked(own.cluster))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the tails, which would go on for ever, then the rest."""
        self._console.is_stopping = True
        await super().shutdown(sockets)

    def stop_with_parent(self) -> None:
        """Stop when the parent's end of standard input closes."""
        while os.read(_STDIN, 4096):
            pass
        self.should_exit = True
