"""Who asks: sessions, their cookies, and the tokens against forged requests.

A session is finite (`LIFETIME_S`, `IDLE_S`) and their number is bounded: at the bound, the one that has been
idle longest ends. A cookie is `id.expiry.signature`; the key of the signatures is made at the start and never
leaves the process, so a restart ends every session. Passwords stay in the settings of the session's clients.
"""

import hmac
import secrets
from collections.abc import Callable
from hashlib import sha256
from time import time
from typing import Final

from sparklog_server.console.clusters import Cluster
from sparklog_server.console.sampling import Samples

SESSIONS_MAX: Final = 200
LIFETIME_S: Final = 8 * 3600
IDLE_S: Final = 3600
_ID_BYTES: Final = 24
_NOTE_S: Final = 30
_NOTE_CHARACTERS_MAX: Final = 300


class Session:
    """One identity: its cluster, its samples. `user` is None where the console asks for no login."""

    def __init__(self, user: str | None, cluster: Cluster, ends_s: float) -> None:
        self.user = user
        self.cluster = cluster
        self.samples = Samples()
        self.ends_s = ends_s
        self.seen_s = ends_s - LIFETIME_S

    def is_over(self, now_s: float) -> bool:
        """Whether it has ended: by a log-out, by its age or because it was idle."""
        return self.cluster.is_closed or now_s >= self.ends_s or now_s >= self.seen_s + IDLE_S


class Sessions:
    """The sessions by the id in their cookie."""

    def __init__(self, *, clock: Callable[[], float] = time) -> None:
        self._key = secrets.token_bytes(32)
        self._clock = clock
        self._open: dict[str, Session] = {}

    # -- cookies ---------------------------------------------------------------------------------------------

    def new_id(self) -> str:
        """The value of a new cookie, signed."""
        return self.signed(f"{secrets.token_urlsafe(_ID_BYTES)}", LIFETIME_S)

    def signed(self, text: str, lifetime_s: int) -> str:
        """`text.expiry.signature`; the text has no dot."""
        assert "." not in text
        body = f"{text}.{int(self._clock()) + lifetime_s}"
        return f"{body}.{self._signature('cookie', body)}"

    def read(self, cookie: str) -> str | None:
        """The text of a signed value; None if it was not signed here, or has expired."""
        body, _, signature = cookie.rpartition(".")
        text, _, expiry = body.rpartition(".")
        if not hmac.compare_digest(self._signature("cookie", body).encode(), signature.encode()):
            return None
        return text if self._clock() < int(expiry) else None

    def csrf_token(self, session_id: str) -> str:
        """The token that each form of this session carries."""
        return self._signature("csrf", session_id)

    def is_csrf_token(self, session_id: str, token: str) -> bool:
        """Whether a form was made for this session."""
        return hmac.compare_digest(self.csrf_token(session_id).encode(), token.encode())

    def note(self, text: str) -> str:
        """A remark for the next page, as the value of a cookie that no other site can make up."""
        return self.signed(text[:_NOTE_CHARACTERS_MAX].encode().hex(), _NOTE_S)

    def read_note(self, cookie: str) -> str | None:
        """The remark, if it was made here and is new."""
        text = self.read(cookie)
        return None if text is None else bytes.fromhex(text).decode()

    def _signature(self, purpose: str, text: str) -> str:
        return hmac.digest(self._key, f"{purpose}:{text}".encode("utf-8", "replace"), sha256).hex()

    # -- sessions --------------------------------------------------------------------------------------------

    def begin(self, session_id: str, user: str | None, cluster: Cluster) -> Session:
        """A session under this id, in place of one that has it."""
        self._sweep()
        self.end(session_id)
        while len(self._open) >= SESSIONS_MAX:
            self.end(min(self._open, key=lambda one: self._open[one].seen_s))
        session = self._open[session_id] = Session(user, cluster, self._clock() + LIFETIME_S)
        return session

    def find(self, session_id: str) -> Session | None:
        """The session of an id, if it has not ended; it is seen now."""
        self._sweep()
        session = self._open.get(session_id)
        if session is not None:
            session.seen_s = self._clock()
        return session

    def end(self, session_id: str) -> None:
        """End a session and close its connections."""
        session = self._open.pop(session_id, None)
        if session is not None:
            session.cluster.close()

    def close(self) -> None:
        """End all sessions."""
        for session_id in list(self._open):
            self.end(session_id)

    def _sweep(self) -> None:
        now_s = self._clock()
        for session_id in [one for one, session in self._open.items() if session.is_over(now_s)]:
            self.end(session_id)
