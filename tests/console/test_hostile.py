"""Hostile names and values through every page: nothing of them acts, everything is cut."""

import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest

import sparklog
from sparklog.client.admin.admin import Admin, NewTopic
from sparklog.client.admin.credentials import ScramUpsertion
from sparklog.client.admin.quotas import QuotaEntity
from sparklog.client.producer.producer import Producer
from sparklog.local_broker import EmbeddedBroker
from sparklog.model import TopicPartition
from tests.console.browser import Browser, Page

NASTY = "<b0ld onload=alert(1)>\"'`&amp;{{7*7}}\x1b[31m\u202egnp.exe\u2066\x00\u200b/../é漢<script>alert(1)</script>"  # noqa: E501
ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
TOPIC = "hostile"


@pytest.fixture(scope="module", autouse=True)
def hostile(broker: EmbeddedBroker, admin: Admin) -> Iterator[None]:
    nasty, large = NASTY.encode(), (NASTY * 15_000).encode()[: 1 << 20]
    admin.create_topics([NewTopic(TOPIC, 1, configs={"max.message.bytes": str(4 << 20)})])
    with Producer(bootstrap_servers=broker.bootstrap_servers, max_request_size=4 << 20) as producer:
        for key, value in (
            (nasty, nasty),
            (large[:1000], large),
            (nasty, b'{"<b0ld>": "' + b"x" * 100 + b'"}'),
            (None, None),
        ):
            producer.send(TOPIC, value, key, headers=[(NASTY, nasty), ("none", None)]).result()
    admin.alter_group_offsets(NASTY, {TopicPartition(TOPIC, 0): 1})
    admin.alter_group_offsets("g" * 3000, {TopicPartition(TOPIC, 0): 1})
    admin.alter_client_quotas({QuotaEntity.of(user=NASTY): {"producer_byte_rate": 1000.0}})
    user = "<b0ld>\"'&\u202eu"
    admin.alter_user_scram_credentials([ScramUpsertion(user, "p", iterations=4096)])
    with sparklog.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=NASTY) as producer:
        producer.init()
    yield
    admin.delete_groups([NASTY, "g" * 3000])


PATHS = [
    "/",
    "/topics",
    f"/topics?q={quote(NASTY)}",
    f"/topics/{quote(NASTY.replace('/', ''), safe='')}",
    f"/topics/{TOPIC}",
    f"/topics/{TOPIC}?edit={quote(NASTY)}",
    f"/topics/{TOPIC}/records",
    *(f"/topics/{TOPIC}/records?as={form}" for form in ("text", "json", "hex", "avro")),
    f"/topics/{TOPIC}/records?filter={quote(NASTY)}",
    f"/topics/{TOPIC}/records?from={quote(NASTY)}&partition={quote(NASTY)}&limit={quote(NASTY)}&as={quote(NASTY)}",
    f"/topics/{TOPIC}/records?from={quote(NASTY)}",
    *(f"/topics/{TOPIC}/records/0/{offset}" for offset in (0, 1, 2, 3, 99, "x", "1" * 400)),
    f"/topics/{TOPIC}/live?filter={quote(NASTY)}&rate={quote(NASTY)}",
    f"/topics/{TOPIC}/produce",
    f"/topics/{TOPIC}/delete",
    "/groups",
    f"/groups?q={quote(NASTY)}",
    f"/group?name={quote(NASTY)}",
    f"/group?name={'g' * 3000}",
    f"/group/reset?name={quote(NASTY)}&way=position&value=beginning",
    f"/group/reset?name={quote(NASTY)}&way={quote(NASTY)}&value={quote(NASTY)}",
    f"/group/reset?name={quote(NASTY)}&way=position&value={quote(NASTY)}",
    "/transactions",
    f"/transactions?q={quote(NASTY)}&state={quote(NASTY)}",
    f"/transaction?id={quote(NASTY)}",
    f"/transaction?id=x{quote(NASTY)}",
    "/nodes",
    "/quotas",
    "/users",
    f"/acls?q={quote(NASTY)}",
    f"/acls/explain?principal={quote(NASTY)}&operation={quote(NASTY)}&resource={quote(NASTY)}&host={quote(NASTY)}",
    f"/acls/explain?principal=a&operation=read&resource={quote(NASTY)}",
    f"/settings?q={quote(NASTY)}&broker={quote(NASTY)}",
    f"/settings?edit={quote(NASTY)}",
    f"/login?next={quote(NASTY)}",
    f"/{quote(NASTY)}",
]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path[:60])
def test_nothing_of_a_hostile_name_or_value_acts(browser: Browser, path: str) -> None:
    response = browser.client.get(path)
    assert response.status_code < 500
    page = Page(response.text)
    assert page.active == []
    assert ACTING.search(page.text) is None
    assert len(response.content) < 200_000
    assert "49" not in re.findall(r"\{\{.*?\}\}|(?<=&amp;amp;)49", response.text)


def test_a_large_value_is_cut_with_a_note(browser: Browser) -> None:
    assert "cut: 1.0" in browser.get(f"/topics/{TOPIC}/records").text
    page = browser.get(f"/topics/{TOPIC}/records/0/1")
    assert "cut: 1.0" in page.text


def test_a_hostile_group_can_be_reached_by_its_link(browser: Browser) -> None:
    links = [one for one in browser.get("/groups").links if one.startswith("/group?name=%3C")]
    assert len(links) == 1
    assert "hostile 0 1 4 3" in browser.get(links[0]).text


def test_a_hostile_quota_and_user_can_be_removed(browser: Browser, admin: Admin) -> None:
    def actions(path: str, action: str) -> list[str]:
        found = [attributes.get("action", "") for tag, attributes in browser.get(path).tags if tag == "form"]
        return [one for one in found if one.startswith(action)]

    (quota,) = actions("/quotas", "/quotas?user=%3Cb0ld")
    browser.post(quota, key="producer_byte_rate", act="delete")
    assert admin.describe_client_quotas() == {}
    (user,) = actions("/users", "/users/remove?user=%3Cb0ld")
    browser.post(user, mechanism="SCRAM-SHA-512")
    assert admin.describe_user_scram_credentials() == {}


def test_notes_of_another_site_are_not_shown(browser: Browser) -> None:
    forged = "3c623e.9999999999.00"
    page = browser.client.get(
        "/topics", headers={"Cookie": f"sparklog_note_0={forged}; sparklog_console_0={forged}"}
    )
    assert "<b>" not in page.text
    assert 'class="note"' not in page.text


@pytest.mark.parametrize(
    "body",
    [
        b"%00%ff%fe=1",
        b"&".join(b"a=%d" % number for number in range(10_000)),
        b"csrf=" + b"x" * (5 << 20),
        b"",
        b"\xff\xfe\x00",
    ],
    ids=["bytes", "fields", "large", "empty", "raw"],
)
def test_a_form_of_garbage_changes_nothing(browser: Browser, body: bytes) -> None:
    response = browser.client.post(
        "/new-topic", content=body, headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert response.status_code in (400, 403)
