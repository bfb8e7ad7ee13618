"""The SASL authentication of one session.

    VERSIONS ─ ApiVersions, answered ─► HANDSHAKE
        │                                  │
        └────────── SaslHandshake ─────────┴─► EXCHANGE ─ SaslAuthenticate, as often as needed ─► DONE
                                                 ▲  └─ refused, or out of order: closed             │
                                                 └── SaslHandshake again, before the session ends ──┤
                                                         after its end: closed at the next request ─┘

The end is that of `connections.max.reauth.ms`, of the credentials, or of the delegation token, which may be
expired at any time.

A session whose authentication has no end keeps no state of this (`Session.authentication` is None), so that
a request costs one comparison.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from sparklog.model import Instant, Micros
from sparklog_server.security.sasl import Authenticated, SaslRefused, ServerMachine, Step

API_VERSIONS: Final = 18
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36

_REAUTHENTICATION_US_MIN: Final = 1_000_000
"""A session may authenticate again at most once a second, as in Kafka."""


class Phase(Enum):
    VERSIONS = auto()
    HANDSHAKE = auto()
    EXCHANGE = auto()
    DONE = auto()


_EXPECTED: Final = {
    Phase.VERSIONS: (API_VERSIONS, SASL_HANDSHAKE),
    Phase.HANDSHAKE: (SASL_HANDSHAKE,),
    Phase.EXCHANGE: (SASL_AUTHENTICATE, API_VERSIONS, SASL_HANDSHAKE),
}
"""The APIs that are answered before a session is authenticated, and within an exchange two of them by
ILLEGAL_SASL_STATE only. Kafka answers any request within an exchange by that error; here no others are
decoded before the client is known.
"""


class Mechanism(NamedTuple):
    """One mechanism of one listener."""

    machine: Callable[[], ServerMachine]
    session_ms_max: int  # 0 for no limit


Mechanisms = Mapping[str, Mechanism]


class SessionAuthentication:
    """The authentication of one session. Invariant: there is a machine exactly in EXCHANGE."""

    __slots__ = (
        "_begun_us",
        "_expires_us",
        "_is_changed",
        "_machine",
        "_offered",
        "_phase",
        "_principal",
        "_session_ms_max",
        "_token_ends_ms",
        "_token_id",
        "mechanism",
    )

    def __init__(
        self, offered: Callable[[], Mechanisms], token_ends_ms: Callable[[str], int | None] = lambda _: None
    ) -> None:
        """`token_ends_ms` gives the expiry of a delegation token, None for one that does not exist."""
        self._offered = offered
        self._token_ends_ms = token_ends_ms
        self._token_id: str | None = None
        self._session_ms_max = 0
        self._phase = Phase.VERSIONS
        self.mechanism = ""
        self._machine: ServerMachine | None = None
        self._principal: str | None = None  # once it has authenticated
        self._begun_us: Micros | None = None  # the last re-authentication
        self._expires_us: Micros | None = None
        self._is_changed = False  # another mechanism was chosen for re-authentication

    @property
    def mechanisms(self) -> Mechanisms:
        """What the listener offers now: a changed password counts for a re-authentication too."""
        return self._offered()

    @property
    def is_authenticated(self) -> bool:
        """Whether the client has authenticated at some time."""
        return self._principal is not None

    @property
    def word(self) -> str:
        """What the session does, for messages."""
        return "authentication" if self._principal is None else "re-authentication"

    def refusal(self, frame: memoryview, now: Instant) -> str | None:
        """Why the session is to be closed instead of serving this frame; None if it is to be served."""
        api_key = int.from_bytes(frame[:2], "big")
        if self._phase is Phase.DONE:
            is_over = self._expires_us is not None and now.mono_us >= self._expires_us
            if self._token_id is not None and not is_over:
                ends_ms = self._token_ends_ms(self._token_id)
                is_over = ends_ms is None or ends_ms < now.wall_ms
            if is_over and not (api_key == SASL_HANDSHAKE and self.may_begin(now)):
                return "the session has expired and was not authenticated again"
            return None
        return None if api_key in _EXPECTED[self._phase] else self.unexpected(api_key)

    def may_begin(self, now: Instant) -> bool:
        """Whether a SaslHandshake may come now."""
        if self._phase is Phase.DONE:
            return self._begun_us is None or now.mono_us - self._begun_us >= _REAUTHENTICATION_US_MIN
        return self._phase in (Phase.VERSIONS, Phase.HANDSHAKE)

    def versions_answered(self) -> None:
        """The client knows the versions: as in Kafka, it may not ask for them again before it authenticates,
        so that one that never does has one answer.
        """
        if self._phase is Phase.VERSIONS:
            self._phase = Phase.HANDSHAKE

    def unexpected(self, api_key: int) -> str:
        """Why a request of this API may not come now."""
        return f"unexpected request of API {api_key} during {self.word}"

    @property
    def may_continue(self) -> bool:
        """Whether a SaslAuthenticate may come now."""
        return self._phase is Phase.EXCHANGE

    def choose(self, mechanism: str, now: Instant) -> None:
        """Begin with one of `mechanisms`."""
        if self._phase is Phase.DONE:
            self._begun_us = now.mono_us
            self._is_changed = mechanism != self.mechanism
        else:
            self.mechanism = mechanism
        self._phase = Phase.EXCHANGE
        chosen = self.mechanisms[mechanism]
        self._session_ms_max = chosen.session_ms_max
        self._machine = chosen.machine()

    def respond(self, response: bytes, now: Instant) -> Step:
        """One step. Raises SaslRefused, and SaslUnavailable."""
        assert self._machine is not None
        if self._is_changed:
            text = (
                f"SASL mechanism requested by client is not supported for re-authentication of mechanism "
                f"'{self.mechanism}'"
            )
            raise SaslRefused(text, text)
        return self._machine.respond(response, now)

    def completed(self, login: Authenticated, now: Instant) -> int | None:
        """The client is authenticated; returns the lifetime of the session in ms, None for no end. Raises
        SaslRefused for another principal than before.
        """
        principal = f"User:{login.user}"
        if self._principal is not None and principal != self._principal:
            before = self._principal.replace(":", ".", 1)
            text = f"Cannot change principals during re-authentication from {before}: User.{login.user}"
            raise SaslRefused(text, text)
        lifetime_ms = self._lifetime_ms(login, now)
        self._machine = None
        self._phase = Phase.DONE
        self._principal, self._token_id = principal, login.token_id
        self._expires_us = None if lifetime_ms is None else Micros(now.mono_us + lifetime_ms * 1000)
        return lifetime_ms

    def _lifetime_ms(self, login: Authenticated, now: Instant) -> int | None:
        limits = [self._session_ms_max] if self._session_ms_max > 0 else []
        if login.expires_ms is not None:
            limits.append(max(0, login.expires_ms - now.wall_ms))
        return min(limits, default=None)
