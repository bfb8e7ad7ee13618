"""Behaviour told as a story: a text file of commands, each followed by `----` and what it answered.

`SPARKLOG_REWRITE_STORIES=1` writes the answers anew; commit that only when every changed line can be
explained.
"""

import os
from collections.abc import Callable
from pathlib import Path


def check_story(path: Path, run: Callable[[str], list[str]]) -> None:
    """Run the commands of a story through `run`, one line each, and compare what they answer with what the
    file says.
    """
    told: list[str] = []
    for block in path.read_text().split("\n\n"):
        commands = block.split("\n----", 1)[0].splitlines()
        comments = [line for line in commands if line.startswith("#")]
        calls = [line for line in commands if line.strip() and not line.startswith("#")]
        answers = [answer for call in calls for answer in run(call)]
        told.append("\n".join([*comments, *calls, *(["----", *answers] if calls else [])]))
    story = "\n\n".join(told) + "\n"
    if os.environ.get("SPARKLOG_REWRITE_STORIES") == "1":
        path.write_text(story)
    assert story.rstrip("\n") == path.read_text().rstrip("\n")


def arguments(line: str) -> tuple[list[str], dict[str, str]]:
    """The plain words of a command (its name first) and its `key=value` words."""
    words = [word for word in line.split() if "=" not in word]
    return words, dict(word.split("=", 1) for word in line.split() if "=" in word)
