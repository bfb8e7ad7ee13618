"""No attack: the honest client's measurements of the machine and of the broker alone."""

import time

from benchmarks.attack.target import Target, attack


@attack
def no_attack(target: Target) -> None:
    """Idle."""
    target.begin()
    time.sleep(target.seconds)
