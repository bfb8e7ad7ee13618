"""The application: its routes and the headers of every answer.

request ─► allowed host? ─► static file, or `ask.get` / `ask.post` around a page ─► headers ─► response
"""

from collections.abc import Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparklog_server.console.ask import Ask, Console
from sparklog_server.console.pages import (
    acls,
    groups,
    live,
    login,
    nodes,
    overview,
    quotas,
    records,
    settings,
    topic,
    topic_access,
    topics,
    transactions,
    users,
)
from sparklog_server.console.rendering import STATIC, templates

LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "[::1]")
_PAGES: Final = (
    *(
        overview,
        nodes,
        topics,
        topic,
        topic_access,
        records,
        live,
        groups,
        transactions,
        quotas,
        users,
        acls,
        settings,
    ),
    login,
)
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class _WithHeaders:
    """Adds the headers that keep a page to itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                if scope["path"].startswith("/static/"):
                    headers["Cache-Control"] = "max-age=3600"
            await send(message)

        await self._app(scope, receive, send_with_headers)


def application(console: Console, hosts: Sequence[str] = LOOPBACK_HOSTS) -> ASGIApp:
    """The console as an ASGI application. `hosts` are the names by which browsers may reach it, `*` is any: a
    page of another site that has its name point here gets nothing.
    """
    for name in templates().list_templates():  # compiled now, and not while the first page waits
        templates().get_template(name)
    routes: list[BaseRoute] = [Mount("/static", StaticFiles(directory=STATIC))]
    for page in _PAGES:
        routes += page.ROUTES
    app = Starlette(
        routes=routes,
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)],
        exception_handlers={HTTPException: _not_served, 500: _bug},
    )
    app.state.console = console
    return _WithHeaders(app)


async def _not_served(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _plain(request, error.status_code, "Not found" if error.status_code == 404 else error.detail, "")


async def _bug(request: Request, error: Exception) -> Response:
    return _plain(request, 500, "The console has a bug", f"{type(error).__name__}; its log has the rest.")


def _plain(request: Request, status: int, title: str, text: str) -> Response:
    return Ask(request.app.state.console, request, "", None).failed(status, title, text)
