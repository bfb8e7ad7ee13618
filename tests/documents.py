"""The blocks between fences of our pages, for tests that run them."""

from typing import NamedTuple

from tests.tools import PROJECT


class Block(NamedTuple):
    """What stands between two fences, in `language` ("" if none is told), below `heading`."""

    heading: str
    language: str
    text: str


class Command(NamedTuple):
    """A command of a block and the lines that the page shows below it."""

    line: str
    shown: list[str]


def blocks(page: str) -> list[Block]:
    found: list[Block] = []
    heading, language, lines = "", None, list[str]()
    for line in (PROJECT / page).read_text().splitlines():
        if line.startswith("```"):
            if language is None:
                language, lines = line[3:], []
            else:
                found.append(Block(heading, language, "\n".join(lines)))
                language = None
        elif language is not None:
            lines.append(line)
        elif line.startswith("#"):
            heading = line.lstrip("# ")
    return found


def commands(block: Block) -> list[Command]:
    found: list[Command] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(Command(line[2:], []))
        elif found:
            found[-1].shown.append(line)
        else:
            found.append(Command(line, []))
    return found
