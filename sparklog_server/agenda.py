"""The work of the broker at the end of a turn. An object notes new work here, so that the end of a turn need
not ask every object.
"""


class Agenda:
    """Three notes, each set by the objects that have the work and cleared by the broker before it does it.

    A note without work costs one check; work without a note would wait until the next tick. The simulation
    asserts after each turn that there is none.
    """

    __slots__ = ("has_coordination", "has_deadlines", "has_syncs")

    def __init__(self) -> None:
        self.has_coordination = True
        """A coordinator has a batch to append, answers to give out, or markers to write."""
        self.has_syncs = True
        """A sync may be due: a request waits for one, its time has come, or the one before has ended."""
        self.has_deadlines = True
        """A deadline may be earlier than the broker has computed, or a report to the controller is due."""
