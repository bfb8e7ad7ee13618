"""What MkDocs needs beyond the pages in this directory: the README as the home page, the change log, and
links to files that are not pages, which the site names and does not have.
"""

import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PROJECT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
"""Pages of the top directory and their names in the site."""
DECISIONS: Final = "decisions/README.md"
_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)#:\s]+)(#[^)]*)?\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages of the top directory."""
    for source, name in PAGES.items():
        text = (PROJECT / source).read_text()
        files.append(File.generated(config, name, content=linked(text, PurePosixPath(source))))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Resolve the links of a page of `docs`, and list the decisions on their page."""
    del config, files
    if page.file.src_uri == DECISIONS:
        markdown += _decisions()
    if page.file.src_uri in PAGES.values():
        return markdown
    return linked(markdown, PurePosixPath("docs") / page.file.src_uri)


def linked(markdown: str, source: PurePosixPath) -> str:
    """The text of a page of the project, by its path in it, with each link as the site has its target. A
    target that is no page becomes its path in the project.
    """
    page = PAGES.get(str(source)) or str(source.relative_to("docs"))

    def link(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        path = posixpath.normpath(source.parent / target)
        if (PROJECT / path / "README.md").is_file():
            path = f"{path}/README.md"
        if not _is_page(path):
            return text if path in text else f"{text} (`{path}`)"
        name = PAGES.get(path) or path.removeprefix("docs/")
        return f"[{text}]({posixpath.relpath(name, posixpath.dirname(page) or '.')}{anchor})"

    return _LINK.sub(link, markdown)


def _decisions() -> str:
    titles = {
        path.name: path.read_text().partition("\n")[0]
        for path in (PROJECT / "docs" / "decisions").glob("0*.md")
    }
    return "\n" + "".join(f"- [{title.lstrip('# ')}]({name})\n" for name, title in sorted(titles.items()))


def _is_page(path: str) -> bool:
    return path in PAGES or (path.startswith("docs/") and path.endswith(".md"))
