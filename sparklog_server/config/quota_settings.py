"""A part of `settings`: each field is the definition of a broker key."""

from typing import Annotated

import msgspec

from .kinds import integer as _int


class QuotaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The windows over which quotas are measured."""

    quota_window_num: Annotated[
        int, _int("quota.window.num", "The number of samples kept for client quotas.", 1)
    ] = 11
    quota_window_size_seconds: Annotated[
        int, _int("quota.window.size.seconds", "The length of one sample of client quotas.", 1)
    ] = 1
    controller_quota_window_num: Annotated[
        int,
        _int(
            "controller.quota.window.num",
            "The number of samples kept for controller mutation quotas.",
            1,
        ),
    ] = 11
    controller_quota_window_size_seconds: Annotated[
        int,
        _int(
            "controller.quota.window.size.seconds",
            "The length of one sample of controller mutation quotas.",
            1,
        ),
    ] = 1
