"""What keeps a consumer in its group while the user's code runs: `GroupTurns` drives `group.Group`
over connections of its own, turned by `GroupThread` here, or by an event loop (`async_consumer.py`).

The user's thread calls the machine under `lock`, and wakes the group's thread by `wake`; it waits at
`changed` for the result. No thread waits for the network, and no user code runs, while the lock is held.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol

from sparklog.client.clock import entropy, now_us
from sparklog.client.membership.group import Group
from sparklog.client.membership.member import Errand
from sparklog.client.settings import ClientSettings
from sparklog.client.transport.connection import UnsupportedByBroker
from sparklog.client.transport.network import Network
from sparklog.errors import BrokerError, ConnectionFailed, ErrorCode, SparklogError
from sparklog.model import Micros

IN_FLIGHT_MAX: Final = 100
_SLEEP_US_MAX: Final = 60_000_000


class _Unsent(NamedTuple):
    errand: Errand
    deadline: Micros


class GroupTurns:
    """Exchanges the requests and replies of one group membership. Invariant: every errand of the group is
    reported once, by `replied` or `failed`.
    """

    def __init__(self, settings: ClientSettings, network: Network) -> None:
        self.group = Group(settings, entropy)
        self._network = network
        network.allow_auto_create = False
        self._unsent: list[_Unsent] = []

    def turn(self) -> Micros:
        """Send, process the replies, send again; returns the time of the next turn."""
        self._send()
        now = now_us()
        for answer in self._network.poll(now):
            errand = answer.token
            if not isinstance(errand, Errand):
                continue
            if answer.message is not None:
                self.group.replied(errand, answer.message, now)
            else:
                assert answer.error is not None
                self.group.failed(errand, answer.error, now)
        self._send()
        wanted = self.group.deadline()
        until = Micros(now_us() + _SLEEP_US_MAX) if wanted is None else wanted
        return self._network.next_event(min([until, *(unsent.deadline for unsent in self._unsent)]), now)

    def _send(self) -> None:
        now = now_us()
        for errand in self.group.errands(now):
            wait = (
                self._network.settings.request_timeout_ms * 1000
                if errand.timeout_us is None
                else errand.timeout_us
            )
            self._unsent.append(_Unsent(errand, Micros(now + wait)))
        unsent, self._unsent = self._unsent, []
        self._unsent = [one for one in unsent if not self._is_settled(one, now)]

    def _is_settled(self, unsent: _Unsent, now: Micros) -> bool:
        """Whether the errand was sent, or never will be."""
        errand, network = unsent.errand, self._network
        node = network.anyone() if errand.node is None else errand.node
        if network.is_ready(node):
            try:
                network.send(
                    node, errand.request, errand, timeout_us=errand.timeout_us, version_max=errand.version_max
                )
            except UnsupportedByBroker as error:
                self.group.failed(errand, error, now)
            except ValueError as error:
                # The newest version that the broker supports cannot carry the request.
                self.group.failed(
                    errand, BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"the broker is too old: {error}"), now
                )
            return True
        if errand.node is not None and errand.node not in network.cluster.brokers:
            network.cluster.refresh_soon()
        is_refused = (
            errand.node is not None
            and not network.is_connected(node)
            and not network.cluster.may_connect(node, now)
        )
        if is_refused or now >= unsent.deadline:
            self.group.failed(
                errand, network.last_error or ConnectionFailed("no broker could be reached in time"), now
            )
            return True
        return False


class Keeper(Protocol):
    """Keeps the membership of a consumer: a thread, or an event loop."""

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Held while the machine is used."""

    @property
    def group(self) -> Group:
        """The machine."""

    @property
    def has_crashed(self) -> bool:
        """Whether no more turns run, because of an exception."""

    def start(self) -> None:
        """Begin the turns."""

    def wake(self) -> None:
        """Run a turn soon, after a call of the machine."""

    def check(self) -> None:
        """Raise the exception that ended the turns, if any."""

    def stop(self) -> None:
        """End the turns, and close the connections."""


class GroupThread:
    """The background thread of one group membership."""

    def __init__(self, settings: ClientSettings, tell_user: Callable[[], None]) -> None:
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self._tell_user = tell_user
        self._network = Network(settings, can_be_woken=True, in_flight_max=IN_FLIGHT_MAX)
        self._turns = GroupTurns(settings, self._network)
        self.group = self._turns.group
        self._is_stopped = False
        self._crash: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="sparklog-group", daemon=True)

    def start(self) -> None:
        """Start the thread; from now on it may call `tell_user`."""
        self._thread.start()

    @property
    def has_crashed(self) -> bool:
        """Whether the thread has ended with an exception."""
        return self._crash is not None

    def wake(self) -> None:
        """Wake the thread after a call of the machine, so that it sends the machine's requests."""
        self._network.wake()

    def check(self) -> None:
        """Raise the exception that ended the thread, if any."""
        if self._crash is not None:
            raise SparklogError(
                f"the thread that keeps the group has failed: {self._crash!r}"
            ) from self._crash

    def wait_for(self, is_true: Callable[[], bool], deadline: Micros) -> bool:
        """Wait until the condition of the machine holds, at most until `deadline`; returns whether it does.
        `lock` is held. Ends at a crash too.
        """
        while not is_true() and self._crash is None:
            left = deadline - now_us()
            if left <= 0:
                return False
            self.changed.wait(left / 1e6)
        return self._crash is None

    def stop(self) -> None:
        """End the thread."""
        with self.lock:
            self._is_stopped = True
        if self._crash is None:
            self._network.wake()
        self._thread.join()

    # -- inside ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_stopped:
                with self.lock:
                    until = self._turns.turn()
                    self.changed.notify_all()
                self._tell_user()
                self._network.wait(until)
        except BaseException as error:  # the user's thread raises it
            with self.lock:
                self._crash = error
                self.changed.notify_all()
            self._tell_user()
        finally:
            self._network.close()
