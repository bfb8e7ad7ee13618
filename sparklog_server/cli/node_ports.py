"""The option for the ports of the nodes of a cluster on one machine."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def takes_base_port(use: str) -> Callable[[Command], Command]:
    """Add `--base-port`; `use` says what the ports from it on are for."""
    return click.option(
        "--base-port",
        metavar="PORT",
        type=int,
        default=9092,
        show_default=True,
        help=f"{use}; 0 selects free ports.",
    )
