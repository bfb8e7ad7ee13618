"""Makes files durable outside the event loop: one thread per log directory and one for the metadata log.

Each directory has its own queue, so a slow disk does not delay the others. The broker groups syncs: one sync
per directory is in flight, and records appended meanwhile go into the next.
"""

import time
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from sparklog.effects import Sync
from sparklog.model import Ticket
from sparklog_server.disk.door import Disk

if TYPE_CHECKING:
    from sparklog_server.histogram import Histogram

Synced = Callable[[Ticket, BaseException | None], None]


class Syncer:
    """Reports the result of every Sync once, through `synced(ticket, error)` on the reactor's thread, in
    order per directory. `times` has the durations of the syncs by directory, each counted on its thread; it
    is None if they are not measured.
    """

    def __init__(self, disk: Disk, post: Callable[[Callable[[], None]], None], synced: Synced) -> None:
        self._disk = disk
        self._post = post
        self._synced = synced
        self._queues: dict[str, SimpleQueue[Sync]] = {}
        self.times: dict[str, Histogram] | None = None

    def sync(self, effect: Sync) -> None:
        """Queue a sync; a directory's thread starts with its first one."""
        queue = self._queues.get(effect.log_dir)
        if queue is None:
            queue = self._queues[effect.log_dir] = SimpleQueue()
            times = None
            if self.times is not None:
                from sparklog_server import histogram  # only where they are shown

                times = self.times[effect.log_dir] = histogram.Histogram()
            Thread(
                target=self._serve, args=(queue, times), name=f"sync {effect.log_dir}", daemon=True
            ).start()
        queue.put(effect)

    def _serve(self, queue: SimpleQueue[Sync], times: "Histogram | None") -> None:
        while True:
            effect = queue.get()
            began_ns = time.monotonic_ns()
            error: BaseException | None = None
            try:
                self._disk.sync(effect.files)
            except BaseException as raised:  # the pump distinguishes a disk error from a bug
                error = raised
            if times is not None:
                times.add((time.monotonic_ns() - began_ns) // 1000)
            self._post(partial(self._synced, effect.ticket, error))
