"""TLS handshakes of accepted connections, in jobs: each takes 1 to 3 ms of processor time, and the loop goes
on meanwhile.

    accepted ─► watched ── bytes ─► a step, in a job ─┬─► more bytes are needed: watched
                  │                                   ├─► done: a connection with its identity
                  │                                   └─► refused: closed
                  └── the time is over, or too many are under way: closed

The step that only checks the client's Finished costs less than handing a job over: the loop takes it itself,
in at most one part of `LOOP_SHARE` of its time.

A handshake that is dropped while its job waits keeps its socket until then, and counts. The broker learns of
a connection when its handshake is done. An unfinished one is a socket, and after its first bytes the state of
OpenSSL.
"""

import socket
import ssl
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final

from sparklog_server.config.listeners import Listener, joined
from sparklog_server.daemon.certificates import Certificates, Contexts
from sparklog_server.daemon.jobs import Jobs
from sparklog_server.daemon.newcomers import Newcomers
from sparklog_server.daemon.pump import read_clock
from sparklog_server.daemon.reactor import READ, Reactor
from sparklog_server.daemon.tls_transport import TlsTransport, shared_buffer
from sparklog_server.security.principals import (
    UNKNOWN,
    CertificateUnreadable,
    Identity,
    NoRuleApplies,
    identity_of,
)

HANDSHAKES_MAX: Final = 1_000
"""Unfinished handshakes, those included that are dropped and whose job waits. Beyond it, the one that has
waited longest is closed, of the address with the most; or the new one, while all have jobs.
"""
LOOP_SHARE: Final = 4
"""After a step on the loop the next ones are jobs for three times as long as it took: many clients whose
Finished come at once delay others no more than one does.
"""
SWEPT_EVERY_S: Final = 1.0
SWEPT_PER_TURN: Final = 32
"""Closing a connection takes 35 us."""
LOGGED_EVERY_US: Final = 10_000_000
"""Refused handshakes are logged at most this often for each listener and reason."""
_REASONS_MAX: Final = 64
_REASONS: Final = {
    "HTTP_REQUEST": "an HTTP request, not TLS",
    "WRONG_VERSION_NUMBER": "not TLS: the client sends plain bytes, or a record of another version",
    "UNSUPPORTED_PROTOCOL": "the client offers no version of ssl.enabled.protocols",
    "NO_SHARED_CIPHER": "the client offers no suite of ssl.cipher.suites, or none for this certificate",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client has no certificate, and ssl.client.auth=required",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the authority of this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not accept this broker's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept this broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "this broker's certificate has expired",
}

Established = Callable[[TlsTransport, str, tuple[str, int], Identity], None]


class _Handshake:
    """One unfinished handshake. While `is_running`, only the job touches the socket."""

    __slots__ = ("began_us", "connected", "is_dropped", "is_running", "listener", "peer", "tls")

    def __init__(
        self, connected: socket.socket, listener: Listener, peer: tuple[str, int], began_us: int
    ) -> None:
        self.connected = connected
        self.listener = listener
        self.peer = peer
        self.began_us = began_us
        self.tls: TlsTransport | None = None
        self.is_running = False
        self.is_dropped = False


class _Refused(Exception):
    """A handshake that failed, and the reason."""


class Handshakes:
    """Those of one kind of listeners: the handshakes among the nodes do not wait for those of clients.

    Invariants: `_unfinished` has each handshake from `begin` until it is established or dropped, oldest
    first; `_open` has those and the dropped ones whose socket is not closed yet.
    """

    def __init__(
        self,
        certificates: Certificates,
        reactor: Reactor,
        jobs: Jobs,
        established: Established,
        *,
        timeout_ms: int,
        after: Callable[[float, Callable[[], None]], None],
        trace: Callable[..., None],
    ) -> None:
        self._certificates = certificates
        self._reactor = reactor
        self._jobs = jobs
        self._established = established
        self._timeout_us = timeout_ms * 1000
        self._after = after
        self._trace = trace
        self._shared = shared_buffer()
        self._unfinished: dict[_Handshake, None] = {}
        self._open: Newcomers[_Handshake] = Newcomers()
        self._is_sweep_due = False
        self._in_job_until_us = 0  # every step is a job until then
        self._logged_us: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def count_of(self, host: str) -> int:
        """The number of unfinished handshakes with this address."""
        return self._open.count_of(host)

    def begin(self, connected: socket.socket, listener: Listener, peer: tuple[str, int]) -> None:
        """Begin a handshake; the socket is non-blocking."""
        one = _Handshake(connected, listener, peer, read_clock().mono_us)
        if len(self._open) >= HANDSHAKES_MAX and not self.drop_oldest():
            self._tell(one, "too many handshakes are under way")
            connected.close()
            return
        self._unfinished[one] = None
        self._open.add(one, peer[0])
        self._watch(one, READ)
        if not self._is_sweep_due:
            self._is_sweep_due = True
            self._after(SWEPT_EVERY_S, self._sweep)

    def drop_oldest(self) -> bool:
        """Close the handshake that has waited for its peer longest, of the address with the most; returns
        False if there is none.
        """
        for host in self._open.busiest():
            for one in self._open.of(host):
                if not one.is_running:
                    self._drop(one)
                    return True
        return False

    def end(self) -> None:
        """Close every unfinished handshake."""
        for one in list(self._unfinished):
            self._drop(one)

    # -- one handshake

    def _watch(self, one: _Handshake, events: int) -> None:
        self._reactor.watch(one.connected.fileno(), partial(self._ready, one), events)
        self._reactor.sleep_next()

    def _ready(self, one: _Handshake, _events: int) -> None:
        self._reactor.forget(one.connected.fileno())
        self._reactor.sleep_next()
        contexts = self._certificates.of_listener(one.listener.name)
        assert contexts is not None
        step = partial(_step, one, contexts, self._shared)
        if one.tls is not None and one.tls.awaits_finished:
            began_us = read_clock().mono_us
            if began_us >= self._in_job_until_us:
                result = step()
                self._in_job_until_us = began_us + LOOP_SHARE * (read_clock().mono_us - began_us)
                self._stepped(one, result)
                return
        one.is_running = True
        self._jobs.run(step, partial(self._stepped, one))

    def _stepped(self, one: _Handshake, result: object) -> None:
        one.is_running = False
        if one.is_dropped:
            self._close(one)
        elif isinstance(result, int):
            self._watch(one, result)
        elif isinstance(result, Identity):
            del self._unfinished[one]
            self._open.remove(one, one.peer[0])
            assert one.tls is not None
            self._established(one.tls, one.listener.name, one.peer, result)
        else:  # refused, or bytes of the peer for which a library has an error of its own
            reason = str(result) if isinstance(result, _Refused) else f"{type(result).__name__}: {result}"
            self._tell(one, reason)
            self._drop(one)

    def _drop(self, one: _Handshake) -> None:
        self._unfinished.pop(one, None)
        one.is_dropped = True
        if not one.is_running:
            self._reactor.forget(one.connected.fileno())
            self._close(one)

    def _close(self, one: _Handshake) -> None:
        self._open.remove(one, one.peer[0])
        one.connected.close()

    def _sweep(self) -> None:
        oldest_us = read_clock().mono_us - self._timeout_us
        late = [one for one in islice(self._unfinished, SWEPT_PER_TURN) if one.began_us < oldest_us]
        for one in late:
            self._tell(one, "not finished within sparklog.ssl.handshake.timeout.ms")
            self._drop(one)
        self._is_sweep_due = bool(self._unfinished)
        if self._is_sweep_due:
            self._after(0 if len(late) == SWEPT_PER_TURN else SWEPT_EVERY_S, self._sweep)

    def _tell(self, one: _Handshake, reason: str) -> None:
        now_us = read_clock().mono_us
        key = (one.listener.name, reason)
        if now_us - self._logged_us.get(key, -LOGGED_EVERY_US) < LOGGED_EVERY_US:
            return
        if len(self._logged_us) >= _REASONS_MAX:
            self._logged_us.clear()
        self._logged_us[key] = now_us
        self._trace("tls-handshake-failed", peer=joined(*one.peer), listener=one.listener.name, reason=reason)


def _step(one: _Handshake, contexts: Contexts, shared: memoryview) -> int | Identity | _Refused:
    """Go on with a handshake: the events that it waits for, or how it has ended."""
    if one.is_dropped:
        return _Refused("dropped while it waited")
    try:
        if one.tls is None:
            assert contexts.server is not None
            one.tls = TlsTransport(one.connected, contexts.server, shared)
        if events := one.tls.handshake():
            return events
        # With SASL, the client's name is that of its user (KIP-684).
        return UNKNOWN if one.listener.is_sasl else identity_of(one.tls.certificate, contexts.rules)
    except ssl.SSLCertVerificationError as error:
        return _Refused(f"the client's certificate is not accepted: {error.verify_message}")
    except ssl.SSLEOFError:
        return _Refused("the client ended the connection")
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        return _Refused(_REASONS.get(reason, reason.lower().replace("_", " ")))
    except OSError as error:
        return _Refused(error.strerror or str(error))
    except (CertificateUnreadable, NoRuleApplies) as error:
        return _Refused(str(error))
    except MemoryError:
        return _Refused("out of memory")
