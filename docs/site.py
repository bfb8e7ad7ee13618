"""What MkDocs needs beyond the pages in this directory: the change log, links to files that are not pages,
which the site names and does not have, and the rank of pages in a search.

A page that shows a picture which the site does not have, and a picture that no page shows, are warnings,
which end the build.
"""

import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import Final

from jinja2 import Environment
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PROJECT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = {"CHANGELOG.md": "changelog.md"}
"""Pages of the top directory and their names in the site."""
DECISIONS: Final = "decisions/README.md"
RANKED_LOWER: Final = ("Reference", "Contributors")
"""Sections of the navigation that a search ranks below guides: a search for a task finds its description
before a method with a similar name.
"""
RANK: Final = 0.1
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)#:\s]+)(#[^)]*)?\)")
_PICTURE: Final = re.compile(r'<img\b[^>]*?\bsrc="([^"]+)"')
_log: Final = get_plugin_logger("site")
_shown: Final[set[str]] = set()
"""The pictures of this build that a page shows."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages of the top directory."""
    _shown.clear()
    for source, name in PAGES.items():
        text = (PROJECT / source).read_text()
        files.append(File.generated(config, name, content=linked(text, PurePosixPath(source))))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Resolve the links of a page of `docs`, and list the decisions on their page."""
    del config, files
    if page.parent is not None and page.parent.title in RANKED_LOWER:
        page.meta["search"] = {"boost": RANK}
    if page.file.src_uri == DECISIONS:
        markdown += _decisions()
    if page.file.src_uri in PAGES.values():
        return markdown
    return linked(markdown, PurePosixPath("docs") / page.file.src_uri)


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Warn of a picture that the site does not have."""
    del config
    for source in _PICTURE.findall(html):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.dest_uri), source))
        if files.get_file_from_path(path) is None:
            _log.warning("%s shows the picture %s, which does not exist", page.file.src_uri, source)
        _shown.add(path)
    return html


def on_env(env: Environment, *, config: MkDocsConfig, files: Files) -> Environment:
    """Warn of pictures that no page shows: the markup was not understood, or the picture is left over."""
    del config
    for file in files.media_files():
        if file.src_uri.startswith("images/") and file.dest_uri not in _shown:
            _log.warning("no page shows the picture %s", file.src_uri)
    return env


def linked(markdown: str, source: PurePosixPath) -> str:
    """The text of a page of the project, by its path in it, with each link as the site has its target. A
    target that is neither a page nor a picture becomes its path in the project.
    """
    page = PAGES.get(str(source)) or str(source.relative_to("docs"))

    def link(found: re.Match[str]) -> str:
        mark, text, target, anchor = found[1], found[2], found[3], found[4] or ""
        path = posixpath.normpath(source.parent / target)
        if (PROJECT / path / "README.md").is_file():
            path = f"{path}/README.md"
        if not (mark or _is_page(path)):
            return text if path in text else f"{text} (`{path}`)"
        name = PAGES.get(path) or path.removeprefix("docs/")
        return f"{mark}[{text}]({posixpath.relpath(name, posixpath.dirname(page) or '.')}{anchor})"

    return _LINK.sub(link, markdown)


def _decisions() -> str:
    titles = {
        path.name: path.read_text().partition("\n")[0]
        for path in (PROJECT / "docs" / "decisions").glob("0*.md")
    }
    return "\n" + "".join(f"- [{title.lstrip('# ')}]({name})\n" for name, title in sorted(titles.items()))


def _is_page(path: str) -> bool:
    return path in PAGES or (path.startswith("docs/") and path.endswith(".md"))
