"""SIGHUP of a broker with a settings file: the file is read again, in a job. Imported at the first one.

SIGHUP ─► job: read, check, try the certificates ─┬─► settings-reloaded: what changed, what waits
                                                  └─► settings-not-reloaded: why; nothing changes
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from sparklog.errors import SettingsError
from sparklog_server.broker.opening.local_partitions import reload
from sparklog_server.config.layers import Layers
from sparklog_server.config.reload import Reloaded, SettingsFile
from sparklog_server.daemon.pump import Pump, Serving, read_clock

if TYPE_CHECKING:
    from sparklog_server.daemon.certificates import Certificates


class Reload:
    """Invariant: at most one job is under way; a signal that comes meanwhile begins another after it."""

    def __init__(
        self,
        file: SettingsFile,
        broker: Serving,
        pump: Pump,
        certificates: "Certificates | None",
        trace: Callable[..., None],
        ended: Callable[[], None],
    ) -> None:
        self._file = file
        self._context, _, _ = broker.observed
        self._pump = pump
        self._certificates = certificates
        self._trace = trace
        self._ended = ended
        self._is_running = self._is_wanted = False

    def begin(self) -> None:
        """Read the file, and call `ended` when its settings are in force or refused."""
        if self._is_running:
            self._is_wanted = True
            return
        self._is_running = True
        layers = self._context.live.layers
        self._pump.run(lambda: self._read(layers), self._done)

    def _read(self, layers: Layers) -> Reloaded | str:
        """A job: the settings, or why there are none."""
        try:
            found = self._file.reloaded(layers)
        except SettingsError as error:
            return str(error)
        if self._certificates is not None:
            now = Layers.of(found.settings, cluster=layers.cluster, broker=layers.broker).effective
            before = layers.effective
            if (now.tls, now.of_listeners) != (before.tls, before.of_listeners):
                return self._certificates.refusal(now) or found
        return found

    def _done(self, result: object) -> None:
        self._is_running = False
        if isinstance(result, BaseException):
            raise result
        if isinstance(result, Reloaded):
            if result.changed:
                reload(self._context.live, self._context.partitions, result.settings, read_clock())
                self._pump.turn()
            self._trace(
                "settings-reloaded",
                file=self._file.path,
                changed=",".join(result.changed),
                overridden=",".join(result.overridden),
                needs_restart=",".join(result.needs_restart),
            )
        else:
            self._trace("settings-not-reloaded", file=self._file.path, reason=str(result))
        if self._is_wanted:
            self._is_wanted = False
            self.begin()
        else:
            self._ended()
