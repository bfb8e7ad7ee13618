"""One election of a node, or the pre-vote before it (KIP-996): the voters asked and their answers."""

from sparklog.model import Instant, Micros, NodeId

from .voters import VoterSet

_RETRY_US = 50_000


class Electing:
    """The votes in one epoch. Invariant: a voter's first answer counts."""

    def __init__(self, voters: VoterSet, *, is_pre_vote: bool, ends_us: Micros) -> None:
        self.is_pre_vote = is_pre_vote
        self.ends_us = ends_us  # then the next one begins
        self.is_given_up = False  # it is lost, and `ends_us` was brought forward
        self._majority = voters.majority
        self._absent: dict[NodeId, bool] = {}
        self._answers: dict[NodeId, bool | None] = dict.fromkeys(sorted(voters.directories))
        self._ask_at_us: dict[NodeId, Micros] = dict.fromkeys(self._answers, Micros(0))

    def answered(self, voter: NodeId, is_granted: bool) -> None:
        """A voter granted its vote or refused it; the node's own vote counts like any other."""
        if voter in self._answers and self._answers[voter] is None:
            self._answers[voter] = is_granted
            self._ask_at_us.pop(voter, None)

    def lost(self, voter: NodeId, now: Instant, *, is_refused: bool) -> None:
        """A voter could not be asked: ask again shortly. Where no process listens, none will vote soon."""
        if self._answers.get(voter, False) is None:
            self._ask_at_us[voter] = Micros(now.mono_us + _RETRY_US)
            self._absent[voter] = is_refused

    def take_unasked(self, now: Instant) -> list[NodeId]:
        """The voters to ask now; each is asked once, until `lost`."""
        due = [voter for voter, at_us in self._ask_at_us.items() if at_us <= now.mono_us]
        for voter in due:
            del self._ask_at_us[voter]
        return due

    @property
    def granted(self) -> list[NodeId]:
        """The voters that granted their vote."""
        return [voter for voter, is_granted in self._answers.items() if is_granted]

    @property
    def is_won(self) -> bool:
        """Whether a majority granted its vote."""
        return len(self.granted) >= self._majority

    @property
    def is_lost(self) -> bool:
        """Whether so many refused, or are down, that no majority can come now."""
        possible = [
            voter
            for voter, is_granted in self._answers.items()
            if is_granted or (is_granted is None and not self._absent.get(voter))
        ]
        return len(possible) < self._majority

    def deadline(self) -> Micros:
        """When a voter is to be asked again, or the election ends."""
        if self.is_won or self.is_lost:
            return self.ends_us
        return min(*self._ask_at_us.values(), self.ends_us, self.ends_us)
