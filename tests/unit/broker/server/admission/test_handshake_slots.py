"""Handshakes at a time: in all and of one address; who finds no room waits, and nobody is kept."""

from __future__ import annotations

import trio
import trio.testing

from kraftrio.broker.server.admission.handshake_slots import HandshakeSlots


class Crowd:
    """Peers that take a slot and keep it until they are told to go."""

    def __init__(self, slots: HandshakeSlots, nursery: trio.Nursery) -> None:
        self.slots = slots
        self.nursery = nursery
        self.inside: list[str] = []
        self.scopes: dict[str, trio.CancelScope] = {}

    async def come(self, *peers: str) -> None:
        for peer in peers:
            self.nursery.start_soon(self._stay, peer)
            await trio.testing.wait_all_tasks_blocked()

    async def _stay(self, peer: str) -> None:
        with trio.CancelScope() as self.scopes[peer]:
            async with self.slots.taken(peer[0]):
                self.inside.append(peer)
                try:
                    await trio.sleep_forever()
                finally:
                    self.inside.remove(peer)

    async def go(self, peer: str) -> None:
        self.scopes[peer].cancel()
        await trio.testing.wait_all_tasks_blocked()


async def test_an_address_leaves_room_for_others() -> None:
    slots = HandshakeSlots(in_all=3, of_one_address=2)
    async with trio.open_nursery() as nursery:
        crowd = Crowd(slots, nursery)
        await crowd.come("a1", "a2", "a3", "b1", "c1")
        assert crowd.inside == ["a1", "a2", "b1"]
        await crowd.go("a1")
        assert crowd.inside == ["a2", "b1", "c1"] or crowd.inside == ["a2", "b1", "a3"]
        await crowd.go("b1")
        assert len(crowd.inside) == 3
        nursery.cancel_scope.cancel()
    assert not slots._addresses


async def test_who_gives_up_waiting_is_forgotten() -> None:
    slots = HandshakeSlots(of_one_address=1)
    async with trio.open_nursery() as nursery:
        crowd = Crowd(slots, nursery)
        await crowd.come("a1", "a2", "a3")
        await crowd.go("a2")
        await crowd.go("a1")
        assert crowd.inside == ["a3"]
        await crowd.go("a3")
        assert not slots._addresses
        await crowd.come("a4")
        assert crowd.inside == ["a4"]
        nursery.cancel_scope.cancel()
