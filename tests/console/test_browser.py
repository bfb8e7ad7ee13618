"""The pages in a real Chromium: scripts under the policy, keys, charts, the live tail, and accessibility.

Chromium is Debian's, unpacked in `.deb/` by `make setup`; axe-core is in `.node/`. Screenshots are kept in
build/console.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import sparklog
from sparklog.client.admin.admin import Admin
from sparklog.client.admin.groups import SPARK_METADATA, GroupOffset
from sparklog.local_broker import EmbeddedBroker
from sparklog.model import Offset, TopicPartition
from sparklog_server.console.ask import Console
from sparklog_server.console.clusters import Target
from tests.console.browser import served
from tests.tools import PROJECT

webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium: see `make setup`")

pytestmark = pytest.mark.compat

CHROMIUM = PROJECT / ".deb" / "chromium" / "usr"
AXE = PROJECT / ".node" / "node_modules" / "axe-core" / "axe.min.js"
SCREENSHOTS = PROJECT / "build" / "console"
WAIT_S = 30
# Accessibility is checked in light on every page, in dark for contrast on those that have every component.
IN_DARK = ("overview", "records", "group", "delete", "quotas")
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
PAGES = {
    "overview": "/",
    "nodes": "/nodes",
    "topics": "/topics",
    "new-topic": "/new-topic",
    "topic": "/topics/seen?all=1&edit=retention.ms",
    "records": "/topics/seen/records",
    "record": "/topics/seen/records/0/0",
    "live": "/topics/seen/live",
    "topic-groups": "/topics/seen/groups",
    "topic-acls": "/topics/seen/acls",
    "produce": "/topics/seen/produce",
    "all-settings": "/settings?all=1",
    "refused": "/topics/seen/records?from=soon",
    "delete": "/topics/seen/delete",
    "groups": "/groups",
    "group": "/group?name=query",
    "reset": "/group/reset?name=query&way=position&value=beginning",
    "transactions": "/transactions",
    "quotas": "/quotas",
    "users": "/users",
    "acls": "/acls",
    "explain": "/acls/explain",
    "settings": "/settings",
    "quorum": "/quorum",
    "nothing": "/nothing",
}

WIDER = """return [...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth)
.map(one => one.getAttribute('aria-label'))"""

# Any: selenium's drivers have no types that mypy strict takes.
Driver = Any


@pytest.fixture(scope="module")
def url(broker: EmbeddedBroker, admin: Admin) -> Iterator[str]:
    admin.create_topics({"seen": 1})
    with sparklog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(20):
            producer.send(
                "seen",
                b'{"delay": %d, "airline": "UA"}' % number,
                b"UA%d" % number,
                headers=[("trace", b"a1")],
            )
        producer.send("seen", b"\x00\xff binary", None)
        producer.send("seen", "<script>document.title = 'taken'</script>\u202e".encode(), b"<b0ld>")
    at = GroupOffset(Offset(3), metadata=SPARK_METADATA)
    admin.alter_group_offsets("query", {TopicPartition("seen", 0): at})
    with served(Console(Target({"bootstrap.servers": broker.bootstrap_servers}))) as url:
        yield url


@pytest.fixture(scope="module")
def driver() -> Iterator[Driver]:
    if not (CHROMIUM / "bin" / "chromedriver").exists():
        pytest.skip("no Chromium in .deb/chromium: see `make setup`")
    libraries = CHROMIUM / "lib" / "x86_64-linux-gnu"
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM / "lib" / "chromium" / "chromium")
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1280,900",
    ):
        options.add_argument(argument)
    service = webdriver.ChromeService(
        str(CHROMIUM / "bin" / "chromedriver"),
        env=os.environ | {"LD_LIBRARY_PATH": f"{libraries}:{libraries / 'pulseaudio'}"},
    )
    driver = webdriver.Chrome(options=options, service=service)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    yield driver
    driver.quit()


def until(driver: Driver, what: Callable[[Driver], object]) -> object:
    """Wait until something is true of the page, which may be replaced meanwhile."""
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.support.ui import WebDriverWait

    waiting = WebDriverWait(
        driver, WAIT_S, poll_frequency=0.05, ignored_exceptions=[StaleElementReferenceException]
    )
    return waiting.until(what)


def found(driver: Driver, selector: str) -> Driver:
    return driver.find_element("css selector", selector)


def text(driver: Driver) -> str:
    return str(found(driver, "main").text)


def complaints(driver: Driver) -> list[str]:
    """What Chromium has logged: scripts that fail, and what the policy has blocked."""
    return [
        one["message"]
        for one in driver.get_log("browser")
        if not any(status in one["message"] for status in ("404 (Not Found)", "400 (Bad Request)"))
    ]


def violations(driver: Driver, rules: str) -> list[object]:
    """What axe-core finds: rules, with the elements that break each."""
    driver.execute_script(AXE.read_text())
    told: list[object] = driver.execute_async_script(
        f"axe.run({rules}).then(told => arguments[0](told.violations.map("
        "one => [one.id, one.nodes.map(node => node.target.join(' '))])))"
    )
    return told


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_every_page_is_accessible_and_fits_the_screen(driver: Driver, url: str, look: str) -> None:
    if not AXE.exists():
        pytest.skip("no axe-core in .node: see `make setup`")
    scheme = {"name": "prefers-color-scheme", "value": "dark" if look == "dark" else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    if look == "phone":
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    try:
        for name, path in PAGES.items():
            driver.get(url + path)
            driver.save_screenshot(str(SCREENSHOTS / f"{look}-{name}.png"))
            assert complaints(driver) == [], path
            if look == "light" or (look == "dark" and name in IN_DARK):
                assert driver.execute_script(WIDER) == [], path
                rules = "" if look == "light" else "{runOnly: ['color-contrast']}"
                assert violations(driver, rules) == [], path
            if look == "phone":
                assert (
                    driver.execute_script("return document.documentElement.scrollWidth") <= PHONE["width"]
                ), path
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_hostile_values_run_no_script(driver: Driver, url: str) -> None:
    driver.get(f"{url}/topics/seen/records")
    assert "<script>document.title = 'taken'</script>\\u202e" in text(driver)
    assert "taken" not in driver.title
    assert driver.execute_script("return document.querySelectorAll('b0ld').length") == 0


def test_keys_search_and_go_to_pages(driver: Driver, url: str) -> None:
    driver.get(url + "/")
    body = found(driver, "body")
    body.send_keys("gt")
    until(driver, lambda one: one.current_url == f"{url}/topics")
    found(driver, "body").send_keys("/")
    field = driver.switch_to.active_element
    assert field.get_attribute("name") == "q"
    field.send_keys("see")
    until(driver, lambda one: "1 topic with “see” in the name" in text(one))
    assert driver.current_url.endswith("q=see")
    field.send_keys("\ue00c")  # Escape
    found(driver, "body").send_keys("?")
    until(driver, lambda one: found(one, "#keys").is_displayed())


def test_a_topic_is_deleted_only_when_its_name_is_typed(driver: Driver, url: str, admin: Admin) -> None:
    admin.create_topics({"gone-soon": 1})
    driver.get(f"{url}/topics/gone-soon/delete")
    button, field = found(driver, "main button"), found(driver, "main input[name=name]")
    assert not button.is_enabled()
    field.send_keys("gone-soo")
    assert not button.is_enabled()
    field.send_keys("n")
    button.click()
    until(driver, lambda one: "Topic gone-soon is deleted." in text(one))
    assert "gone-soon" not in admin.list_topics()


def test_a_record_is_written_and_opened(driver: Driver, url: str) -> None:
    driver.get(f"{url}/topics/seen/produce")
    found(driver, "#value").send_keys('{"written": "here"}')
    found(driver, "main button").click()
    until(driver, lambda one: "Written to seen-0" in text(one))
    assert '"written": "here"' in text(driver)


def test_a_chart_is_drawn_of_samples(driver: Driver, url: str) -> None:
    driver.get(f"{url}/group?name=query")
    until(
        driver,
        lambda one: one.execute_script("return document.querySelectorAll('.chart canvas').length") == 1,
    )
    assert complaints(driver) == []


def test_a_record_is_seen_whole_on_a_phone(driver: Driver, url: str) -> None:
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    try:
        driver.get(f"{url}/topics/seen/records?as=hex")
        for part in driver.find_elements("css selector", "td pre"):
            place = part.rect
            assert place["x"] + place["width"] <= PHONE["width"]
            assert driver.execute_script("return arguments[0].scrollWidth <= arguments[0].clientWidth", part)
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_part_of_a_tree_of_json_folds(driver: Driver, url: str) -> None:
    driver.get(f"{url}/topics/seen/records/0/0")
    assert '"delay": 0' in text(driver)
    found(driver, "pre summary").click()
    assert '"delay": 0' not in text(driver)


def test_a_live_tail_shows_new_records_pauses_and_resumes(
    driver: Driver, url: str, broker: EmbeddedBroker, admin: Admin
) -> None:
    admin.create_topics({"watched": 1})
    with sparklog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        driver.get(f"{url}/topics/watched/live")
        until(driver, lambda one: "live" in found(one, "#counts").text)
        producer.send("watched", b"first <b0ld>").result()
        until(driver, lambda one: "first <b0ld>" in found(one, "#rows").text)
        found(driver, "#pause").click()
        assert "paused" in found(driver, "#counts").text
        producer.send("watched", b"second").result()
        assert "second" not in found(driver, "#rows").text
        found(driver, "#pause").click()
        until(driver, lambda one: "second" in found(one, "#rows").text)
        assert "2 records seen, 2 shown" in found(driver, "#counts").text
    assert complaints(driver) == []
