"""How many examples the property tests try, and which.

`SPARKLOG_EXAMPLES` is not set (`make test`): a quarter of a test's examples, the same in every run, so that
a pass does not depend on luck. `SPARKLOG_EXAMPLES=N` (`make test-long`, `make fuzz`): random examples, N
times as many as the test names; a failure prints the seed that repeats it.

An example that ever failed is kept with its test, as `@example(…)` or as a case of its own.
"""

import os
from typing import Any, Final

from hypothesis import HealthCheck, settings

_DEFAULT: Final = 100
_QUICK_MIN: Final = 20
_TIMES: Final = int(os.environ.get("SPARKLOG_EXAMPLES", "0"))


def load_profile() -> None:
    """Set the defaults of all property tests; called before the first of them is imported."""
    # A machine under load makes a test slow, not wrong.
    slow = [HealthCheck.too_slow]
    settings.register_profile(
        "sparklog",
        max_examples=_count(_DEFAULT),
        derandomize=not _TIMES,
        deadline=None,
        suppress_health_check=slow,
        print_blob=True,
    )
    settings.load_profile("sparklog")


def examples(count: int, **others: Any) -> settings:
    """The settings of a test of `count` examples: a quarter of them in `make test`, but 20 where there are
    as many.
    """
    return settings(max_examples=_count(count), **others)


def _count(count: int) -> int:
    return count * _TIMES if _TIMES else max(count // 4, min(count, _QUICK_MIN))
