"""Findings of commands that judge: a state, what it is about, what was found, what to do about it."""

import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

import click

from sparklog.escapes import terminal
from sparklog_server.cli.printing import print_json, print_line

State = Literal["OK", "UNKNOWN", "WARN", "CRITICAL"]

EXIT_CODES: Final[dict[State, int]] = {"OK": 0, "UNKNOWN": 0, "WARN": 1, "CRITICAL": 2}
_COLOURS: Final[dict[State, str]] = {"OK": "green", "UNKNOWN": "cyan", "WARN": "yellow", "CRITICAL": "red"}


class Finding(NamedTuple):
    """One line. `subject` is a fixed word; `found` has the value; `remedy` is empty for OK. UNKNOWN is what
    this machine or user cannot see: it does not change the exit code.
    """

    state: State
    subject: str
    found: str
    remedy: str = ""


def exit_code(findings: Sequence[Finding]) -> int:
    """0 if nothing is wrong, 1 for a warning, 2 if something is critical."""
    return max((EXIT_CODES[one.state] for one in findings), default=0)


def print_findings(
    findings: Sequence[Finding], *, is_json: bool, more: Mapping[str, object] = MappingProxyType({})
) -> int:
    """Print each finding on a line of its own, in the order given, and return the exit code. `more` are
    further keys of the JSON.
    """
    code = exit_code(findings)
    if is_json:
        states: list[State] = ["CRITICAL", "WARN", "UNKNOWN"]
        worst = next((state for state in states if any(one.state == state for one in findings)), "OK")
        print_json(
            {"state": worst, "exit_code": code, "findings": [one._asdict() for one in findings]} | dict(more)
        )
        return code
    is_terminal = sys.stdout.isatty()
    for one in findings:
        if not is_terminal:
            print_line(*one)
            continue
        remedy = f" → {one.remedy}" if one.remedy else ""
        text = terminal(f"{one.subject}: {one.found}{remedy}")
        click.echo(f"{click.style(f'{one.state:8}', _COLOURS[one.state])} {text}")
    return code
