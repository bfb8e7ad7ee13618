"""Makes files durable outside the event loop: one thread per log directory and one for the metadata log.

Each directory has its own queue, so a slow disk does not delay the others. The broker groups syncs: one sync
per directory is in flight, and records appended meanwhile go into the next.
"""

from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from threading import Thread

from sparklog.effects import Sync
from sparklog.model import Ticket
from sparklog_server.disk.door import Disk

Synced = Callable[[Ticket, BaseException | None], None]


class Syncer:
    """Reports the result of every Sync once, through `synced(ticket, error)` on the reactor's thread, in
    order per directory.
    """

    def __init__(self, disk: Disk, post: Callable[[Callable[[], None]], None], synced: Synced) -> None:
        self._disk = disk
        self._post = post
        self._synced = synced
        self._queues: dict[str, SimpleQueue[Sync]] = {}

    def sync(self, effect: Sync) -> None:
        """Queue a sync; a directory's thread starts with its first one."""
        queue = self._queues.get(effect.log_dir)
        if queue is None:
            queue = self._queues[effect.log_dir] = SimpleQueue()
            Thread(target=self._serve, args=(queue,), name=f"sync {effect.log_dir}", daemon=True).start()
        queue.put(effect)

    def _serve(self, queue: SimpleQueue[Sync]) -> None:
        while True:
            effect = queue.get()
            error: BaseException | None = None
            try:
                self._disk.sync(effect.files)
            except BaseException as raised:  # the pump distinguishes a disk error from a bug
                error = raised
            self._post(partial(self._synced, effect.ticket, error))
