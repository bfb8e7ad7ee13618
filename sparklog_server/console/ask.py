"""One request of a browser, and what surrounds every page: login, forged requests, read-only mode, errors.

get(path, page), post(path, action) ─► session of the cookie, or /login ─► token of the form ─► page
                                                                            └─► error as a page
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from time import time
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import parse_qs, quote, urlencode

import anyio
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from sparklog.client.admin.positions import Position, position
from sparklog.client.failures import AuthenticationFailed, UnknownTopic
from sparklog.errors import BrokerError, ErrorCode, RequestTimeout, SparklogError
from sparklog_server.console.access import LIFETIME_S, Session, Sessions
from sparklog_server.console.clusters import THREADS_MAX, Cluster, ClusterAway, Target
from sparklog_server.console.rendering import templates
from sparklog_server.operations.refused import OperationRefused
from sparklog_server.operations.schemas import Decode
from sparklog_server.operations.similar_names import similar

if TYPE_CHECKING:
    from sparklog.client.admin.admin import Admin

T = TypeVar("T")

BODY_BYTES_MAX: Final = 4 << 20
FIELDS_MAX: Final = 10_000
DIGITS_MAX: Final = 19
"""Of a number in a form or an address: those of 2^63."""
TAILS_MAX: Final = 10
LOGINS_MAX: Final = 4
"""Attempts at the same time: the cluster delays those that fail."""
RETRY_S: Final = 3
_PRIVATE: Final = {"Cache-Control": "no-store"}
_NOT_FOUND: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    ErrorCode.RESOURCE_NOT_FOUND,
)


_OF_FIELDS: Final[Mapping[ErrorCode, tuple[str, ...]]] = {
    ErrorCode.TOPIC_ALREADY_EXISTS: ("name",),
    ErrorCode.INVALID_TOPIC_EXCEPTION: ("name",),
    ErrorCode.INVALID_PARTITIONS: ("partitions", "count"),
    ErrorCode.INVALID_REPLICATION_FACTOR: ("replication",),
}
"""The fields that a broker's error is about, those first that are likelier."""


class Refused(OperationRefused):
    """A request of a browser that cannot be done as it is; `field` is that of the form."""

    def __init__(self, text: str, field: str = "", status: int = 400) -> None:
        super().__init__(text, field)
        self.status = status


class Absent(SparklogError):
    """A name that the cluster does not have. `address` and a name are a page of the console."""

    def __init__(self, kind: str, name: str, existing: Iterable[str], address: str) -> None:
        super().__init__(f"there is no {kind} {name!r}")
        self.similar = {one: address + quote(one, safe="") for one in similar(name, existing)}


_OF_NO_FORM: Final = (Absent, AuthenticationFailed, ClusterAway, RequestTimeout, UnknownTopic)


def position_in(text: str, field: str) -> Position:
    """The position that a field of a form has; raises OperationRefused."""
    try:
        return position(text, int(time() * 1000))
    except ValueError as error:
        raise OperationRefused(str(error), field) from None


class Console:
    """What all requests share."""

    def __init__(
        self,
        target: Target,
        *,
        needs_login: bool = False,
        is_read_only: bool = False,
        is_tls: bool = False,
        port: int = 0,
        schemas: Mapping[str, Decode] | None = None,
    ) -> None:
        self.target = target
        self.needs_login = needs_login
        self.is_read_only = is_read_only
        self.is_tls = is_tls
        # Cookies are shared by the ports of a host: each console there has names of its own.
        self.cookie, self.note_cookie = f"sparklog_console_{port}", f"sparklog_note_{port}"
        self.schemas = dict(schemas or {})
        self.sessions = Sessions()
        self.limiter = anyio.CapacityLimiter(THREADS_MAX)
        self.tails = anyio.CapacityLimiter(TAILS_MAX)
        self.logins = anyio.CapacityLimiter(LOGINS_MAX)
        self.is_stopping = False
        self.own = (
            None if needs_login else Session(None, Cluster(target.as_itself(), self.limiter), float("inf"))
        )

    def session_of(self, session_id: str | None) -> Session | None:
        """The session of a cookie; without login, all share the console's own."""
        if session_id is None:
            return None
        return self.sessions.find(session_id) if self.own is None else self.own

    def close(self) -> None:
        """End every session, and close the console's own connections."""
        self.sessions.close()
        if self.own is not None:
            self.own.cluster.close()

    def set_cookie(self, response: Response, name: str, value: str, seconds: int) -> None:
        """Set a cookie that no script reads and no other site sends in a form."""
        response.set_cookie(
            name, value, max_age=seconds, httponly=True, samesite="lax", secure=self.is_tls, path="/"
        )


class Ask:
    """One request, with the session that it belongs to."""

    def __init__(self, console: Console, request: Request, session_id: str, session: Session | None) -> None:
        self.console = console
        self.request = request
        self.session_id = session_id
        self._session = session
        self.form: dict[str, list[str]] = {}
        self.problems: dict[str, str] = {}
        """What is wrong with a form, by field; by the empty text what is about none."""
        self._status = 200

    @property
    def session(self) -> Session:
        """The session; only the login page has none."""
        assert self._session is not None
        return self._session

    @property
    def cluster(self) -> Cluster:
        """The cluster, with the rights of the session."""
        return self.session.cluster

    @property
    def may_change(self) -> bool:
        """Whether pages offer changes."""
        return not self.console.is_read_only

    async def admin(self, work: "Callable[[Admin], T]") -> T:
        """See Cluster.admin."""
        return await self.cluster.admin(work)

    # -- what was asked --------------------------------------------------------------------------------------

    def query(self, name: str, default: str = "") -> str:
        """A parameter of the address, without space around it."""
        return self.request.query_params.get(name, default).strip()

    def number(self, name: str, default: int, *, at_most: int) -> int:
        """A parameter that is a number, within [0, at_most]; the default if it is no number."""
        text = self.query(name)
        return min(int(text), at_most) if text.isdecimal() and len(text) <= DIGITS_MAX else default

    def part(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def field(self, name: str, default: str = "") -> str:
        """A field of the form."""
        return self.form.get(name, [default])[0]

    def either(self, name: str) -> str:
        """A field of the form or, if that is empty, a parameter of the address, which has any character:
        no field of HTML has NUL.
        """
        return self.field(name) or self.request.query_params.get(name, "")

    def required(self, name: str, what: str) -> str:
        """As `either`; Refused if it is empty."""
        text = self.either(name)
        if not text:
            raise Refused(f"{what} is empty", name)
        return text

    def wrong(self, error: Exception) -> None:
        """Have the page show an error beside the field of the form that it is about."""
        self.problems.setdefault(_field_of(error, self.form), str(error))
        self._status = _status_of(error)

    # -- answers ---------------------------------------------------------------------------------------------

    def page(self, template: str, status: int | None = None, **context: object) -> Response:
        """A page from a template; its forms have what was sent, and beside it what is wrong."""
        console = self.console
        note_cookie = self.request.cookies.get(console.note_cookie, "")
        shown = {
            "csrf": console.sessions.csrf_token(self.session_id),
            "may_change": self.may_change,
            "needs_login": console.needs_login,
            "user": None if self._session is None else self._session.user,
            "servers": ", ".join(console.target.servers),
            "path": self.request.url.path,
            "note": console.sessions.read_note(note_cookie) if note_cookie else None,
            "given": self.field,
            "problems": self.problems,
            **context,
        }
        html = templates().get_template(template).render(shown)
        placed = {field for field in self.problems if field and f'id="w-{field}"' in html}
        if placed < self.problems.keys() - {""}:  # the page has no such field: the error goes to its head
            rest = " ".join(text for field, text in self.problems.items() if field not in placed)
            shown["problems"] = {"": rest, **{field: self.problems[field] for field in placed}}
            html = templates().get_template(template).render(shown)
        response = HTMLResponse(html, self._status if status is None else status, headers=_PRIVATE)
        if note_cookie:
            response.delete_cookie(console.note_cookie)
        return response

    def moved(self, path: str, note: str = "", **query: object) -> Response:
        """Go to another page, which shows the note."""
        response = RedirectResponse(f"{path}?{urlencode(query)}" if query else path, 303, headers=_PRIVATE)
        if note:
            self.console.set_cookie(response, self.console.note_cookie, self.console.sessions.note(note), 30)
        return response

    def failed(self, status: int, title: str, text: str) -> Response:
        """A page with an error."""
        return self.page("error.html", status, title=title, text=text, similar={})


Page = Callable[[Ask], Awaitable[Response]]


def get(path: str, page: Page, *, is_open: bool = False) -> Route:
    """A page; an open one needs no session."""

    async def endpoint(request: Request) -> Response:
        return await _served(request, page, is_open=is_open)

    return Route(path, endpoint, methods=["GET"])


def post(path: str, action: Page, *, form: Page | None = None, is_open: bool = False) -> Route:
    """A change: its form carries the session's token. None but an open one exists in read-only mode.
    `form` is the page with the form: it is shown again, as it was sent, with the reason if the change is
    refused.
    """

    async def endpoint(request: Request) -> Response:
        async def act(ask: Ask) -> Response:
            if ask.console.is_read_only and not is_open:
                return ask.failed(403, "Read-only", "This console runs with --read-only: it changes nothing.")
            if not await _read_form(ask):
                return ask.failed(
                    403,
                    "The form has expired",
                    "It belongs to another session of the console. Go back, reload the page, send it again.",
                )
            try:
                return await action(ask)
            except (SparklogError, OperationRefused) as error:
                if form is None or isinstance(error, _OF_NO_FORM):
                    raise
                ask.wrong(error)
                return await form(ask)

        return await _served(request, act, is_open=is_open)

    return Route(path, endpoint, methods=["POST"])


async def _served(request: Request, page: Page, *, is_open: bool) -> Response:
    console: Console = request.app.state.console
    cookie = request.cookies.get(console.cookie)
    session_id = None if cookie is None else console.sessions.read(cookie)
    new_cookie = None
    if session_id is None:
        new_cookie = console.sessions.new_id()
        session_id = str(console.sessions.read(new_cookie))
    session = console.session_of(session_id)
    ask = Ask(console, request, session_id, session)
    if session is None and not is_open:
        response = _to_login(ask)
    else:
        response = await _answered(ask, page)
    if new_cookie is not None and console.cookie not in _cookies_set(response):
        console.set_cookie(response, console.cookie, new_cookie, LIFETIME_S)
    return response


def _cookies_set(response: Response) -> str:
    return ";".join(response.headers.getlist("set-cookie"))


def _to_login(ask: Ask) -> Response:
    """The login page, which leads back here; a page that only a script reads just fails."""
    url = ask.request.url
    if ask.request.method != "GET" or ask.request.headers.get("accept", "").startswith(
        ("application/", "text/event")
    ):
        return ask.moved("/login") if ask.request.method == "POST" else Response("log in first", 401)
    return ask.moved("/login", next=url.path + (f"?{url.query}" if url.query else ""))


async def _answered(ask: Ask, page: Page) -> Response:
    try:
        return await page(ask)
    except ClusterAway as error:
        response = ask.page("away.html", 503, reason=str(error), retry_s=RETRY_S)
        if ask.request.method == "GET":
            response.headers["Refresh"] = str(RETRY_S)
        return response
    except AuthenticationFailed as error:
        if ask.console.needs_login:
            ask.console.sessions.end(ask.session_id)
            return ask.moved("/login", f"The cluster no longer accepts this login: {error}")
        return ask.failed(502, "The cluster refuses the console's login", str(error))
    except RequestTimeout as error:
        return ask.failed(504, "The cluster did not answer in time", str(error))
    except UnknownTopic as error:
        return await _without_topic(ask, error)
    except Absent as error:
        return ask.page("error.html", 404, title="Not found", text=str(error), similar=error.similar)
    except BrokerError as error:
        return ask.failed(_status_of(error), "The cluster refused", str(error))
    except (SparklogError, OperationRefused) as error:
        return ask.failed(400, "This cannot be done", str(error))


async def _without_topic(ask: Ask, error: UnknownTopic) -> Response:
    name = ask.request.path_params.get("topic", "")
    try:
        existing = await ask.cluster.topics() if name else {}
    except SparklogError:  # names are optional
        existing = {}
    if not name or name in existing:
        return ask.failed(404, "Not found", str(error))
    absent = await to_thread.run_sync(Absent, "topic", name, existing, "/topics/")
    return ask.page("error.html", 404, title="Not found", text=str(absent), similar=absent.similar)


def _field_of(error: Exception, form: Mapping[str, list[str]]) -> str:
    """The field that an error is about, or empty text."""
    if isinstance(error, OperationRefused):
        return error.field
    if not isinstance(error, BrokerError):
        return ""
    settings = [
        one for one in form if one.startswith("config.") and one.removeprefix("config.") in str(error)
    ]
    if form.get("act") == ["set"] and form.get("key", [""])[0] in str(error):
        settings.append("value")
    likely = (*sorted(settings, key=len, reverse=True), *_OF_FIELDS.get(error.code, ()))
    return next((one for one in likely if one in form), "")


def _status_of(error: Exception) -> int:
    if isinstance(error, Refused):
        return error.status
    if not isinstance(error, BrokerError):
        return 400
    if error.code in _NOT_FOUND:
        return 404
    return 403 if error.code.name.endswith("AUTHORIZATION_FAILED") else 400


async def _read_form(ask: Ask) -> bool:
    """Read the form of a request; False unless it carries the token of the session."""
    request = ask.request
    site = request.headers.get("sec-fetch-site", "same-origin")
    if site not in ("same-origin", "none"):
        return False
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise Refused(f"a form has at most {BODY_BYTES_MAX} bytes")
    try:
        # Browsers write the line ends of text fields as CRLF.
        ask.form = {
            name: [value.replace("\r\n", "\n") for value in values]
            for name, values in parse_qs(
                body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"
            ).items()
        }
    except ValueError:
        return False
    return ask.console.sessions.is_csrf_token(ask.session_id, ask.field("csrf"))
