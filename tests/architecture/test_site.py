"""The documentation site builds without a warning, and needs no other address."""

import json
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from docs import protocol_page
from docs.site import linked
from sparklog.wire.api_keys import API_BY_KEY
from tests.tools import PROJECT

CODE_ADDRESSES = re.compile(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(?:https?:)?//[^"]+')


@pytest.mark.timeout(300)
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    built = subprocess.run(
        (sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)),
        cwd=PROJECT,
        env={"PATH": "/usr/bin:/bin", "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr  # --quiet would hide them from --strict too
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 40
    foreign = {found for page in pages for found in CODE_ADDRESSES.findall(page.read_text())}
    assert foreign == set()
    assert "Producer" in (tmp_path / "client.html").read_text()
    home = (tmp_path / "index.html").read_text()
    pictures = set(re.findall(r'<img[^>]* src="images/([^"]+)"', home))
    assert pictures == {"kill.svg", "architecture.svg", "figures.svg"}
    assert all(
        'href="site.css"' in page.read_text() for page in tmp_path.glob("*.html") if page.stem != "404"
    )
    entries = json.loads((tmp_path / "search" / "search_index.json").read_text())["docs"]
    ranks = {entry["location"]: entry.get("boost", 1) for entry in entries}
    assert ranks["client.html#sparklog.client.admin.Admin.alter_reassignments"] < 1
    assert ranks["cluster.html#move-replicas"] == 1


def test_a_picture_that_is_missing_or_shown_nowhere_is_a_warning_which_ends_the_build(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    (docs / "images").mkdir(parents=True)
    (docs / "images" / "here.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (tmp_path / "mkdocs.yml").write_text(
        f"site_name: a\nstrict: true\nhooks: [{PROJECT / 'docs' / 'site.py'}]\nplugins: []\n"
    )

    def warnings(page: str) -> list[str]:
        (docs / "page.md").write_text(page)
        built = subprocess.run(
            (sys.executable, "-m", "mkdocs", "build", "--strict"),
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(PROJECT)},
            capture_output=True,
            text=True,
            check=False,
        )
        # The change log, which the hook adds, links to pages that are not here.
        return re.findall("WARNING.*picture.*", built.stderr)

    assert warnings("![here](images/here.svg)") == []
    gone = "page.md shows the picture images/gone.svg, which does not exist"
    assert gone in "".join(warnings('![here](images/here.svg) <img alt="" src="images/gone.svg">'))
    assert "no page shows the picture images/here.svg" in "".join(warnings("`![here](images/here.svg)`"))


@pytest.mark.parametrize(
    ("source", "written", "shown"),
    [
        ("CHANGELOG.md", "[limits](docs/limits.md#memory)", "[limits](limits.md#memory)"),
        ("CHANGELOG.md", "[docs/decisions](docs/decisions)", "[docs/decisions](decisions/README.md)"),
        ("CHANGELOG.md", "[programs](examples)", "programs (`examples`)"),
        ("docs/cluster.md", "[log](../CHANGELOG.md)", "[log](changelog.md)"),
        ("docs/decisions/0003-x.md", "[disks](../disks.md)", "[disks](../disks.md)"),
        ("docs/decisions/0003-x.md", "[next](0004-own-event-loop.md)", "[next](0004-own-event-loop.md)"),
        ("docs/concepts.md", "![a log](images/log.svg)", "![a log](images/log.svg)"),
        ("docs/decisions/0003-x.md", "![a log](../images/log.svg)", "![a log](../images/log.svg)"),
        ("CHANGELOG.md", "![a log](docs/images/log.svg)", "![a log](images/log.svg)"),
        ("docs/tools.md", "[elsewhere](https://example.org/x)", "[elsewhere](https://example.org/x)"),
    ],
)
def test_a_link_leads_to_its_page_or_names_the_file(source: str, written: str, shown: str) -> None:
    assert linked(written, PurePosixPath(source)) == shown


def test_the_index_by_reader_and_the_navigation_name_every_page() -> None:
    pages = {
        path.relative_to(PROJECT / "docs").as_posix()
        for path in (PROJECT / "docs").rglob("*.md")
        if not path.name[0].isdigit()
    } - {"index.md"}
    index = (PROJECT / "docs" / "index.md").read_text().partition("## Every page, by reader")[2]
    assert {page for page in pages if f"({page})" not in index} == set()
    navigation = (PROJECT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    assert {page for page in pages if f"- {page}\n" not in navigation} == set()


def test_readme_is_a_screen_and_a_half() -> None:
    assert len((PROJECT / "README.md").read_text().splitlines()) <= 95, "the rest belongs in docs/"


def test_what_is_not_supported_agrees_with_the_tables_of_apis_and_settings() -> None:
    assert protocol_page.contradictions() == []


def test_the_record_of_used_versions_has_the_clients_of_the_page_and_lies_within_what_is_served() -> None:
    record = protocol_page.recorded()
    assert set(record) == {client.section for client in protocol_page.CLIENTS}
    served = {api.name: range(api.since, api.until + 1) for api in API_BY_KEY.values()}
    beyond = [
        (name, api, low, high)
        for name, client in record.items()
        for api, (low, high) in client["apis"].items()
        if not served[api].start <= low <= high < served[api].stop
    ]
    assert beyond == []


def test_words_are_spelled_as_the_dictionary_has_them() -> None:
    checked = subprocess.run(
        (sys.executable, "-m", "codespell_lib", "README.md", "CHANGELOG.md", "changelog.d", "docs"),
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, checked.stdout) == (0, "")
