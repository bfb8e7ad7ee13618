"""A console that listens, and a browser without JavaScript in front of it."""

import re
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html.parser import HTMLParser

import httpx
import uvicorn

from sparklog_server.console.app import LOOPBACK_HOSTS, application
from sparklog_server.console.ask import Console

_TOKEN = re.compile(r'name="csrf" value="(\w+)"')


class Page(HTMLParser):
    """A parsed page: its text, its links, the values of its fields, and what could act on it."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self._pieces: list[str] = []
        self._linked: dict[str, str] = {}
        self._values: dict[str, list[str]] = {}
        self._choice = ""
        self._texts: dict[str, str] = {}
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag != "wbr":
            self._pieces.append(" ")
        told = self.tags[-1][1]
        if tag == "input":
            self._values.setdefault(told.get("name", ""), []).append(told.get("value", ""))
        if tag == "select":
            self._choice = told.get("name", "")

    def handle_data(self, data: str) -> None:
        self._pieces.append(data)
        tag, attributes = self.tags[-1] if self.tags else ("", {})
        if tag == "textarea":
            self._values.setdefault(attributes["name"], []).append(data)
        if tag == "option" and "selected" in attributes:
            self._values.setdefault(self._choice, []).append(data)
        if tag == "a":
            self._linked.setdefault(data, attributes.get("href", ""))
        if "id" in attributes:
            self._texts.setdefault(attributes["id"], data)

    @property
    def text(self) -> str:
        """The text, with single spaces."""
        return re.sub(r"[ \n\t]+", " ", "".join(self._pieces))

    @property
    def links(self) -> list[str]:
        """The addresses of links."""
        return [attributes["href"] for tag, attributes in self.tags if tag == "a" and "href" in attributes]

    def fields(self, action: str) -> list[dict[str, str]]:
        """The named fields with their values, of each form with this action."""
        forms: list[dict[str, str]] = []
        is_in = False
        for tag, attributes in self.tags:
            if tag == "form":
                is_in = attributes.get("action", "").partition("?")[0] == action
                forms += [{}] if is_in else []
            elif is_in and tag == "input" and "name" in attributes:
                forms[-1][attributes["name"]] = attributes.get("value", "")
        return forms

    def link(self, text: str) -> str:
        """The address of the link with this text."""
        return self._linked[text]

    def wrong(self, field: str) -> str:
        """The error beside a field; empty text without one."""
        return self._texts.get(f"w-{field}", "")

    def has_sent(self, name: str, value: str) -> bool:
        """Whether a field of this name has the value: as an input, a text of several lines or a choice."""
        return value in self._values.get(name, [])

    @property
    def active(self) -> list[tuple[str, dict[str, str]]]:
        """Elements and attributes that a policy without inline code forbids, or that no template has."""
        return [
            (tag, attributes)
            for tag, attributes in self.tags
            if tag in ("iframe", "object", "embed", "base", "style", "b0ld")
            or (tag == "script" and not attributes.get("src", "").startswith("/static/"))
            or any(name.startswith("on") or name == "style" for name in attributes)
            or attributes.get("href", "/").lower().startswith(("javascript:", "data:"))
        ]


class Browser:
    """Follows redirects, keeps cookies, and sends forms with the token of its session."""

    def __init__(self, url: str) -> None:
        self.client = httpx.Client(base_url=url, follow_redirects=True, timeout=60, trust_env=False)

    def get(self, path: str, status: int = 200, **parameters: str) -> Page:
        """The page of an address."""
        response = self.client.get(path, params=parameters or None)
        assert response.status_code == status, response.text
        return Page(response.text)

    def post(self, path: str, status: int = 200, **fields: str | list[str]) -> Page:
        """The page after a form was sent."""
        response = self.client.post(path, data={"csrf": self.token(), **fields})
        assert response.status_code == status, response.text
        return Page(response.text)

    def token(self) -> str:
        """The token in the forms of this session."""
        found = _TOKEN.search(self.client.get("/new-topic").text) or _TOKEN.search(
            self.client.get("/login").text
        )
        assert found is not None
        return found[1]


@contextmanager
def served(console: Console, hosts: Sequence[str] = LOOPBACK_HOSTS) -> Iterator[str]:
    """The address of a console that listens on a free port."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen()  # a connection waits until the server accepts it
    server = uvicorn.Server(
        uvicorn.Config(application(console, hosts), lifespan="off", log_config=None, ws="none", http="h11")
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        console.is_stopping = True
        server.should_exit = True
        thread.join()
        bound.close()
        console.close()


@contextmanager
def browsing(console: Console, hosts: Sequence[str] = LOOPBACK_HOSTS) -> Iterator[Browser]:
    """A browser in front of a console of its own."""
    with served(console, hosts) as url:
        browser = Browser(url)
        try:
            yield browser
        finally:
            browser.client.close()
