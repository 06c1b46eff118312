"""Whether a voter remembers what it promised, and what one may do that does not.

A voter promises two things: it votes once in an epoch, and what it has acknowledged to a leader
stays in its log. Both rest on its disk. A voter that comes back with another disk, or without its
log or its election state, knows neither what it voted nor what it held: believed, two such voters
of three would elect each other, and the third would truncate its log. So a voter is *proven* or
not; the mark is in the election state file, written with the vote it belongs to, so that a kill at
any point leaves the truth. Owns: `VoterMemory`, sans-IO. Rules for a voter that is not proven:

1. It grants no vote and no pre-vote to a candidate that has a log, and says so in its answer
   (INVALID_VOTER_KEY: the voter that was meant is not here).
2. It does not stand for election, unless it has nothing at all (rule 5).
3. It fetches without naming itself, so that the leader counts it neither for the high watermark nor
   for its own quorum.
4. It is proven by a leader and a majority of *other* voters that are proven. It has caught up: an
   answer of the leader of epoch E showed that nothing follows its log. And a majority of the others
   has answered, when asked after that, that E is the epoch they are in.

   Why that is enough. What this voter may once have helped to commit in E or before is in the log
   of E's leader, hence in its own now. What it may have helped to commit later needs a leader of
   a later epoch, whose voters are a majority; all but this one of them were in that epoch before
   this voter forgot, which the majority that was asked contradicts. What is left are votes for
   candidates that have not won yet. A candidate first gets pre-votes of a majority, and that
   meets the majority that was asked, so no candidacy is later than E + 1. Up to four voters the
   majority that was asked is *all* the others, none of which is a candidate then: the voter is
   proven at once. In a larger quorum one that was not asked may still win E + 1 with the forgotten
   vote; there the voter is proven once an epoch after E + 1 begins, or E + 1 has its leader. Until
   then it grants pre-votes, which promise nothing, so that such an epoch can begin.
5. A new cluster has no proven voter, so that none could vouch for another. It is founded by an
   election in which every voter says that it has nothing either: a candidate with an empty log
   needs the votes of all voters, for its pre-vote and for its vote. One that has data ends this: it
   grants nothing to an empty log; one that is away does, too. A voter that is asked for its vote by
   such a candidate knows that all voters had nothing when they answered the pre-vote: nothing
   committed exists, its memory begins with this vote, and it is proven. A crash in the middle of
   the founding leaves voters that are proven, voters that never voted, and no committed record that
   a majority of proven voters does not hold; while all logs are empty the same election takes place
   again.
6. A voter that knows that something was committed, but lacks it, has lost its log: it is not
   proven, whatever its mark says, and does not take part in a founding.

A quorum of one has nobody to contradict it: it is always proven. A quorum whose majority is lost
for good stays without a leader until an operator declares its remaining voters proven.

Called by: the parts of the Raft core. Compare KIP-853, which recognises a
voter with another disk by its directory id and leaves it out until an operator adds it.
"""

from __future__ import annotations

from kraftrio.kraft_meta.raft.voters import VoterSet

_NEVER = -1


class VoterMemory:
    """What one voter may be believed; an observer promises nothing and is never asked."""

    def __init__(self, node_id: int, voters: VoterSet, *, is_proven: bool) -> None:
        self._others = voters.others(node_id)
        self._majority = voters.majority
        self._voter_count = len(voters)
        self.is_proven = is_proven or not self._others or node_id not in voters
        self._asked_epoch = _NEVER
        self._confirmed: set[int] = set()
        # The epoch that a majority of the others confirmed, when that is not enough yet.
        self._vouched_epoch = _NEVER

    # ---- what it may do

    def may_stand(self, *, has_nothing: bool) -> bool:
        """Return whether it may ask for votes (rules 2 and 5)."""
        return self.is_proven or has_nothing

    def may_grant(self, *, has_nothing: bool, candidate_is_empty: bool, pre_vote: bool) -> bool:
        """Whether it may give a vote at all (rules 1, 4 and 5); its log decides after that."""
        if self.is_proven or (has_nothing and candidate_is_empty):
            return True
        return pre_vote and self._vouched_epoch != _NEVER

    def votes_needed(self, *, has_nothing: bool) -> int:
        """Return how many voters, the candidate included, elect a leader (rule 5)."""
        return self._voter_count if has_nothing else self._majority

    # ---- how it becomes proven

    def on_founding_vote(self) -> None:
        """Take part in the election of a new cluster: memory begins here (rule 5)."""
        self.is_proven = True

    def voters_to_ask(self, epoch: int) -> list[int]:
        """Return whom to ask for their epoch, now that it has caught up in this one (rule 4)."""
        if self.is_proven:
            return []
        if self._asked_epoch != epoch:
            self._asked_epoch = epoch
            self._confirmed = set()
        return [voter for voter in self._others if voter not in self._confirmed]

    def on_epoch_confirmed(self, voter: int, epoch: int) -> None:
        """Learn from a proven voter that it is in this epoch (rule 4)."""
        if self.is_proven or epoch != self._asked_epoch or voter not in self._others:
            return
        self._confirmed.add(voter)
        if len(self._confirmed) == len(self._others) >= self._majority:
            self.is_proven = True
        elif len(self._confirmed) >= self._majority:
            self._vouched_epoch = epoch

    def on_epoch_begun(self, epoch: int, *, has_leader: bool) -> None:
        """Learn of the epoch that this voter is in now (rule 4)."""
        if self._vouched_epoch != _NEVER and epoch > self._vouched_epoch + (not has_leader):
            self.is_proven = True
