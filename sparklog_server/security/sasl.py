"""The outcomes of one step of a SASL conversation, as each mechanism of the broker gives them.

respond(response) ─┬─► Challenge ─► the client ─► respond(...)
                   ├─► Authenticated
                   ├─► Working: a job, whose result `then` turns into one of the others
                   ├─► Waiting: for something that other conversations wait for too
                   └─► SaslRefused
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from sparklog.model import Instant

OTHER_AUTHORIZATION_ID: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


class SaslRefused(Exception):
    """A conversation has failed. The client gets `shown`, or a general sentence; the log gets the reason.
    Neither has a secret, or bytes of the client.
    """

    def __init__(self, reason: str, shown: str | None = None) -> None:
        super().__init__(reason)
        self.shown = shown


class Challenge(NamedTuple):
    """The client is to respond to `data`."""

    data: bytes


class Authenticated(NamedTuple):
    """The client is `user`, with `data` as the last challenge. The credentials end at `expires_ms` (wall
    clock), if at all; `token_id` is that of the delegation token that they are.
    """

    user: str
    data: bytes = b""
    expires_ms: int | None = None
    token_id: str | None = None
    groups: tuple[str, ...] = ()


class Working(NamedTuple):
    """The step needs a job; `then` takes its result within a turn, and may raise SaslRefused."""

    job: Callable[[], object]
    then: "Callable[[object, Instant], Challenge | Authenticated]"


class Waiting(NamedTuple):
    """The step goes on later: `wait` calls its argument once within a turn, and then `then` gives the step.
    It may raise SaslUnavailable.
    """

    wait: Callable[[Callable[[Instant], None]], None]
    then: Callable[[], Working]


class SaslUnavailable(Exception):
    """The credentials cannot be checked now: the client is to connect again later."""


Step = Challenge | Authenticated | Working | Waiting


class ServerMachine(Protocol):
    """One conversation of a mechanism."""

    def respond(self, response: bytes, now: Instant) -> Step:
        """The next step. Raises SaslRefused, and SaslUnavailable."""
