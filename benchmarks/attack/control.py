"""No attack: what the honest client sees of the machine and of the broker alone."""

import time

from benchmarks.attack.target import Target, attack


@attack
def no_attack(target: Target) -> None:
    """Idle."""
    target.begin()
    time.sleep(target.seconds)
