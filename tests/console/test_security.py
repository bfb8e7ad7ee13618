"""Who may do what: login, forged requests, read-only mode, headers, names of hosts."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import sparklog
from sparklog.client.admin.acls import AclRule
from sparklog.client.admin.admin import Admin
from sparklog.client.admin.credentials import ScramUpsertion
from sparklog.local_broker import EmbeddedBroker
from sparklog_server.cli.client_files import read_client_file
from sparklog_server.console.ask import Console
from sparklog_server.console.clusters import Target
from tests.console.browser import Browser, browsing

CREATION = {"name": "forged"}


def test_every_answer_has_the_headers(browser: Browser) -> None:
    for path in ("/", "/topics", "/nowhere", "/static/console.js", "/rates"):
        headers = browser.client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
    assert browser.client.get("/").headers["cache-control"] == "no-store"


@pytest.mark.parametrize("fields", [CREATION, {**CREATION, "csrf": ""}, {**CREATION, "csrf": "0" * 64}])
def test_a_form_without_the_token_of_the_session_changes_nothing(
    browser: Browser, fields: dict[str, str]
) -> None:
    response = browser.client.post("/new-topic", data=fields)
    assert response.status_code == 403
    browser.get("/topics/forged", 404)


def test_a_token_of_another_session_is_refused(browser: Browser, broker: EmbeddedBroker) -> None:
    with browsing(Console(Target({"bootstrap.servers": broker.bootstrap_servers}))) as other:
        assert browser.client.post("/new-topic", data={**CREATION, "csrf": other.token()}).status_code == 403


def test_a_form_of_another_site_is_refused_with_its_token(browser: Browser) -> None:
    fields = {**CREATION, "csrf": browser.token()}
    for site in ("cross-site", "same-site"):
        response = browser.client.post("/new-topic", data=fields, headers={"Sec-Fetch-Site": site})
        assert response.status_code == 403


@pytest.mark.parametrize(
    "host", ["attacker.example", "127.0.0.1.attacker.example", "", "localhost.attacker.example:9080"]
)
def test_a_name_that_another_site_points_here_gets_nothing(browser: Browser, host: str) -> None:
    response = browser.client.get("/", headers={"Host": host})
    assert response.status_code == 400
    assert "Cluster" not in response.text


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9080", "[::1]:9080"])
def test_the_names_of_loopback_are_answered(browser: Browser, host: str) -> None:
    assert browser.client.get("/", headers={"Host": host}).status_code == 200


def test_read_only_offers_and_takes_no_change(broker: EmbeddedBroker, admin: Admin) -> None:
    admin.create_topics({"kept": 1})
    with browsing(
        Console(Target({"bootstrap.servers": broker.bootstrap_servers}), is_read_only=True)
    ) as reader:
        for path in (
            "/",
            "/nodes",
            "/topics",
            "/topics/kept",
            "/topics/kept/records",
            "/quotas",
            "/users",
            "/settings",
            "/acls",
        ):
            page = reader.get(path)
            assert not [
                1 for tag, attributes in page.tags if tag == "form" and attributes.get("method") == "post"
            ]
        token = reader.token()
        for path in (
            "/new-topic",
            "/topics/kept/delete",
            "/topics/kept/produce",
            "/nodes",
            "/nodes/cancel",
            "/quotas",
            "/users",
            "/group/reset",
        ):
            response = reader.client.post(path, data={"csrf": token, "name": "kept"})
            assert response.status_code == 403
    assert "kept" in admin.list_topics()


# -- login ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with sparklog.embedded(secure=True, data_dir=tmp_path_factory.mktemp("secure") / "data") as broker:
        with Admin(**broker.client_settings) as admin:
            admin.create_topics({"open": 1, "closed": 1})
            admin.alter_user_scram_credentials([ScramUpsertion("alice", "wonder<land>")])
            admin.create_acls(
                [
                    AclRule("topic", "open", "User:alice", operation)
                    for operation in ("read", "write", "describe")
                ]
            )
        yield broker


@pytest.fixture
def visitor(secure: EmbeddedBroker) -> Iterator[Browser]:
    settings = read_client_file(str(Path(secure.data_dir) / "client.properties"))
    settings["bootstrap.servers"] = secure.bootstrap_servers
    with browsing(Console(Target(settings), needs_login=True)) as visitor:
        yield visitor


def log_in(
    visitor: Browser, status: int = 200, name: str = "alice", password: str = "wonder<land>", **more: str
) -> str:
    return visitor.post("/login", status, name=name, password=password, **more).text


def test_without_a_login_every_page_leads_to_it(visitor: Browser) -> None:
    for path in ("/", "/topics", "/topics/open/records", "/settings", "/group?name=x"):
        assert visitor.client.get(path).url.path == "/login"
    for path in ("/rates", "/topics/open/tail"):
        response = visitor.client.get(path, headers={"Accept": "application/json"})
        assert response.status_code == 401
    assert visitor.client.post("/new-topic", data={"name": "x", "csrf": visitor.token()}).url.path == "/login"


def test_a_user_of_the_cluster_acts_with_the_rights_of_that_user(visitor: Browser) -> None:
    assert "alice" in log_in(visitor)
    assert "/topics/open" in visitor.get("/topics").links
    assert "/topics/closed" not in visitor.get("/topics").links
    assert "Written to open-0" in visitor.post("/topics/open/produce", value="1").text
    assert "AUTHORIZATION" in visitor.post("/new-topic", 403, name="mine").text
    visitor.get("/topics/closed/records", 403)
    assert "AUTHORIZATION" in visitor.get("/acls", 403).text
    visitor.post("/logout")
    assert visitor.client.get("/").url.path == "/login"


def test_a_live_tail_ends_with_its_session(visitor: Browser) -> None:
    log_in(visitor)
    with visitor.client.stream("GET", "/topics/open/tail") as response:
        lines = response.iter_lines()
        assert next(lines) == "event: counts"
        visitor.post("/logout")
        assert "event: gone" in lines


@pytest.mark.parametrize(
    ("name", "password"),
    [("alice", "wrong"), ("nobody", "x"), ("<b0ld>", "\x00"), ("a" * 2000, "x"), ("", "")],
)
def test_a_wrong_password_begins_no_session(visitor: Browser, name: str, password: str) -> None:
    response = visitor.client.post(
        "/login", data={"csrf": visitor.token(), "name": name, "password": password}
    )
    assert response.status_code in (400, 403)
    assert "<b0ld>" not in response.text
    assert visitor.client.get("/").url.path == "/login"


def test_the_cookie_changes_at_the_login_and_no_script_reads_it(visitor: Browser) -> None:
    visitor.client.get("/login")
    before = dict(visitor.client.cookies)
    response = visitor.client.post(
        "/login",
        data={"csrf": visitor.token(), "name": "alice", "password": "wonder<land>"},
        follow_redirects=False,
    )
    cookie = response.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert dict(visitor.client.cookies) != before


@pytest.mark.parametrize(
    "following", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/\n/x"]
)
def test_a_login_leads_to_no_other_site(visitor: Browser, following: str) -> None:
    response = visitor.client.post(
        "/login",
        data={"csrf": visitor.token(), "name": "alice", "password": "wonder<land>", "next": following},
        follow_redirects=False,
    )
    assert response.headers["location"] == "/"


def test_an_explanation_names_the_rule_and_the_command(secure: EmbeddedBroker) -> None:
    settings = read_client_file(str(Path(secure.data_dir) / "client.properties"))
    settings["bootstrap.servers"] = secure.bootstrap_servers
    with browsing(Console(Target(settings))) as admin:
        assert "User:alice" in admin.get("/acls").text
        asked = {"principal": "alice", "operation": "read"}
        assert "a rule allows it" in admin.get("/acls/explain", resource="topic:open", **asked).text
        assert "sparklog acls add" in admin.get("/acls/explain", resource="topic:closed", **asked).text
        added = admin.post(
            "/acls",
            principal="bob",
            operation="read",
            type="topic",
            name="open",
            permission="allow",
            host="",
            pattern="literal",
        )
        assert "User:bob" in added.text
        removed = admin.post(
            "/acls/remove?principal=User:bob&name=open&host=*",
            type="topic",
            pattern="literal",
            operation="read",
            permission="allow",
        )
        assert "Removed 1 rule" in removed.text
        assert "User:bob" not in admin.get("/acls").text


def test_the_rules_of_a_topic_are_those_that_cover_its_name(secure: EmbeddedBroker) -> None:
    settings = read_client_file(str(Path(secure.data_dir) / "client.properties"))
    settings["bootstrap.servers"] = secure.bootstrap_servers
    with browsing(Console(Target(settings))) as administrator:
        rules = administrator.get("/topics/open/acls").text
        assert "3 rules for this topic" in rules
        assert "User:alice allow read open literal *" in rules
        assert "No rule is for this topic." in administrator.get("/topics/closed/acls").text
