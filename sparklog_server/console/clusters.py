"""The cluster as one identity sees it: blocking calls of the client, in a bounded number of threads."""

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any, Final, Generic, NamedTuple, TypeVar

import anyio
import anyio.to_thread

from sparklog.client.admin.admin import Admin
from sparklog.client.admin.topics import Topic
from sparklog.client.failures import AuthenticationFailed
from sparklog.client.settings import ClientSettings, address_of
from sparklog.errors import ConnectionFailed, RequestTimeout, SettingsError, SparklogError

T = TypeVar("T")

THREADS_MAX: Final = 16
IDLE_MAX: Final = 2
"""Connections that an identity keeps between requests."""
API_TIMEOUT_MS: Final = 8_000
PROBE_S_MAX: Final = 2.0
PROBED_AFTER_S: Final = 1.0
"""A cluster that has not answered for this long is tried by a connection: that fails soon if it is away."""
SOON_S: Final = 0.6
"""A page waits this long for a part that it had before: a broker that hangs would hold it up for seconds."""
TOPICS_FRESH_S: Final = 2.0
"""The age up to which a list of topics is shown again: a page of 10 000 topics is asked for often."""
SASL_DEFAULT: Final = "SCRAM-SHA-512"
_PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_CREDENTIALS: Final = ("sasl.jaas.config", "sasl.username", "sasl.password")


class ClusterAway(SparklogError):
    """No broker answers."""


class Soon(NamedTuple, Generic[T]):
    """A result and its age in seconds: 0 for one that came in time."""

    result: T
    age_s: float


class Target:
    """The cluster and the settings with which its clients connect, by Kafka's names."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = {
            "default.api.timeout.ms": str(API_TIMEOUT_MS),
            "max.block.ms": str(API_TIMEOUT_MS),
            "client.id": "sparklog-console",
            **settings,
        }
        self.is_sasl = self._settings.get("security.protocol", "").startswith("SASL_")
        self.has_credentials = not self.is_sasl or any(self._settings.get(key) for key in _CREDENTIALS)
        mechanism = self._settings.get("sasl.mechanism", SASL_DEFAULT)
        self._login_mechanism = mechanism if mechanism in _PASSWORD_MECHANISMS else SASL_DEFAULT
        # Found wrong here, and not at the first page.
        probe = self.as_itself() if self.has_credentials else self.as_user("name", "password")
        self.servers = probe.bootstrap_servers

    def as_itself(self) -> ClientSettings:
        """The settings with the credentials of the console's own settings."""
        return ClientSettings.from_kafka(self._settings)

    def as_user(self, name: str, password: str) -> ClientSettings:
        """The settings with those of a user; raises SettingsError for a cluster without SASL."""
        if not self.is_sasl:
            raise SettingsError(
                "a login needs a cluster with users: set security.protocol to SASL_SSL or SASL_PLAINTEXT"
            )
        kept = {key: value for key, value in self._settings.items() if key not in _CREDENTIALS}
        return ClientSettings.from_kafka(
            kept
            | {
                "sasl.mechanism": self._login_mechanism,
                "sasl.username": name,
                "sasl.password": password,
            }
        )


def all_topics(admin: Admin) -> dict[str, Topic]:
    """Every topic by name, internal ones too."""
    return admin.list_topics(include_internal=True)


class Cluster:
    """One identity's way to the cluster. Any number of tasks may call it."""

    def __init__(self, settings: ClientSettings, limiter: anyio.CapacityLimiter) -> None:
        self.settings = settings
        self._limiter = limiter
        self._idle: list[Admin] = []
        self._answered_s = 0.0  # the time of the last call that succeeded; 0 after one that failed
        self._addresses = set(settings.bootstrap_servers)
        self._is_closed = False
        self._topics: tuple[float, dict[str, Topic]] | None = None
        # By the name of a call: the one that runs, and the last result with its time. Any: that of each call.
        self._running: dict[str, asyncio.Future[Any]] = {}
        self._last: dict[str, tuple[float, Any]] = {}

    async def admin(self, work: "Callable[[Admin], T]") -> T:
        """The result of `work`, in a thread, with a client that no other call uses meanwhile. Raises
        ClusterAway if no broker answers.
        """
        return await self.run(self.with_admin, work)

    async def soon(self, name: str, work: "Callable[[Admin], T]", without: T | None = None) -> Soon[T]:
        """As `admin`, within `SOON_S`: if a broker hangs, the last result of the call of this name, or
        `without` if there is none yet. With neither it waits. One call of a name runs at a time.
        """

        def ended(running: "asyncio.Future[T]") -> None:
            if not running.cancelled() and running.exception() is None:
                self._last[name] = (monotonic(), running.result())

        running: asyncio.Future[T] | None = self._running.get(name)
        if running is None or running.done():
            running = asyncio.ensure_future(self.run(self.with_admin, work, waits=False))
            self._running[name] = running
            running.add_done_callback(ended)
        has_other = name in self._last or without is not None
        await asyncio.wait({running}, timeout=SOON_S if has_other else None)
        if running.done() and not (has_other and isinstance(running.exception(), RequestTimeout)):
            return Soon(running.result(), 0.0)
        if name not in self._last:
            assert without is not None
            return Soon(without, 0.0)
        at_s, last = self._last[name]
        return Soon(last, monotonic() - at_s)

    async def change(self, work: "Callable[[Admin], T]") -> T:
        """As `admin`, for a call that changes the cluster: what was read before is forgotten."""
        try:
            return await self.admin(work)
        finally:
            self._topics = None
            self._running.pop("topics", None)

    async def run(self, work: Callable[..., T], *arguments: object, waits: bool = True) -> T:
        """The result of a blocking function, in one of the threads. ConnectionFailed becomes
        ClusterAway. Unless it `waits`, a task that is cancelled leaves the function to itself.
        """
        try:
            return await anyio.to_thread.run_sync(
                self._run, work, arguments, limiter=self._limiter, abandon_on_cancel=not waits
            )
        except ConnectionFailed as error:
            raise ClusterAway(str(error)) from error

    async def topics(self) -> dict[str, Topic]:
        """Every topic by name, internal ones too, at most `TOPICS_FRESH_S` old while the brokers answer."""
        if self._topics is not None and monotonic() < self._topics[0] + TOPICS_FRESH_S:
            return self._topics[1]
        listed = await self.soon("topics", all_topics)
        if not listed.age_s:
            self._topics = (monotonic(), listed.result)
        return listed.result

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def know(self, addresses: Iterable[str]) -> None:
        """Remember the addresses of the brokers: one of them may answer when no bootstrap server does."""
        self._addresses = {*self.settings.bootstrap_servers, *addresses}

    def close(self) -> None:
        """Close the connections; those of calls that still run close when they end."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    def _run(self, work: Callable[..., T], arguments: tuple[object, ...]) -> T:
        if monotonic() > self._answered_s + PROBED_AFTER_S:
            self._probe()
        try:
            result = work(*arguments)
        except (ConnectionFailed, RequestTimeout):
            self._answered_s = 0.0
            self._probe()
            raise
        self._answered_s = monotonic()
        return result

    def _probe(self) -> None:
        """Raises ConnectionFailed at once if no server accepts a connection: a client would go on trying."""
        reasons = []
        for server in sorted(self._addresses):
            try:
                socket.create_connection(address_of(server), timeout=PROBE_S_MAX).close()
                return
            except OSError as error:
                reasons.append(f"{server} ({(error.strerror or str(error)).lower()})")
        raise ConnectionFailed(f"no broker at {', '.join(reasons)}")

    def with_admin(self, work: "Callable[[Admin], T]") -> T:
        """The result of `work`, with a client that no other call uses meanwhile. It blocks: see `run`."""
        try:
            admin = self._idle.pop()
        except IndexError:  # another thread may take the last one
            admin = Admin.from_settings(self.settings, awaits_silent=False)
        try:
            result = work(admin)
        except (ConnectionFailed, RequestTimeout, AuthenticationFailed):
            admin.close()
            raise
        except BaseException:
            self._put_back(admin)
            raise
        self._put_back(admin)
        return result

    def _put_back(self, admin: Admin) -> None:
        if self._is_closed or len(self._idle) >= IDLE_MAX:
            admin.close()
        else:
            self._idle.append(admin)
