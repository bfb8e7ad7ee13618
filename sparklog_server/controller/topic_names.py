"""The rules for topic names."""

import re

from sparklog.errors import ErrorCode
from sparklog_server.outcome import Refused

NAME_LENGTH_MAX = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_name(name: str) -> None:
    """Refuse an invalid topic name (Topic.validate)."""
    reason = None
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        reason = f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    elif _LEGAL_NAME.fullmatch(name) is None:
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if reason is not None:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def unified(name: str) -> str:
    """The name with `.` replaced by `_`, as metric names have it."""
    return name.replace(".", "_")
