"""Consumer groups: which of a group's consumers reads which queue.

All consumers of a store live in the process that has it open, so there is nothing to negotiate: the queues are dealt
out evenly, in order, and anew whenever a consumer comes or goes or a queue appears.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mqstore.layout.queue_unit import QueueKey


@dataclass(eq=False)
class Membership:
    """One consumer's place in its group: the topics that it reads."""

    topics: frozenset[str]


@dataclass
class _Group:
    members: list[Membership] = field(default_factory=list)


class ConsumerGroups:
    """The groups that have consumers at the moment. Safe for several threads.

    Attributes:
        generation: changes whenever a consumer comes or goes.
    """

    def __init__(self, queues_of: Callable[[str], Iterable[QueueKey]]) -> None:
        """``queues_of`` gives the queues of a topic, those that exist now."""
        self._queues_of = queues_of
        self._guard = threading.Lock()
        self._groups: dict[str, _Group] = {}
        self.generation = 0

    def join(self, group: str, topics: Iterable[str]) -> Membership:
        """Add a consumer of ``topics`` to ``group``."""
        with self._guard:
            self.generation += 1
            member = Membership(frozenset(topics))
            entry = self._groups.setdefault(group, _Group())
            entry.members.append(member)
            return member

    def leave(self, group: str, member: Membership) -> None:
        """Take a consumer out; its queues go to the others at their next poll."""
        with self._guard:
            entry = self._groups[group]
            entry.members.remove(member)
            self.generation += 1
            if not entry.members:
                del self._groups[group]

    def assigned(self, group: str, member: Membership) -> set[QueueKey]:
        """The queues that ``member`` reads now: an even share of each topic's queues, neighbours together."""
        with self._guard:
            members = list(self._groups[group].members)
        mine: set[QueueKey] = set()
        for topic in member.topics:
            sharing = [one for one in members if topic in one.topics]
            queues = sorted(self._queues_of(topic))
            mine.update(_share(queues, sharing.index(member), len(sharing)))
        return mine

    def names(self) -> list[str]:
        """Groups with at least one consumer."""
        with self._guard:
            return sorted(self._groups)


def _share(queues: list[QueueKey], place: int, of: int) -> list[QueueKey]:
    """The part of ``queues`` for number ``place`` of ``of``; the first ones get the odd queues."""
    size, odd = divmod(len(queues), of)
    start = place * size + min(place, odd)
    return queues[start : start + size + (place < odd)]
