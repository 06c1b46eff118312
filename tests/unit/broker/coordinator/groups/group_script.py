"""Runs the commands of scenarios of classic groups (traces/*.txt) on a shard in virtual time.

Members have short names; the ids that the coordinator gives them are not shown. Commands:

    delay MS                     set group.initial.rebalance.delay.ms; first of all
    join NAME [KEY=VALUE ...]    JoinGroup; keys: session, rebalance (timeouts in ms), protocols
    sync NAME [NAME=TEXT ...]    SyncGroup, by the leader with an assignment for each member
    heartbeat NAME [GENERATION]  Heartbeat, of the present generation unless another is given
    leave NAME                   LeaveGroup
    wait MS                      let time pass, stopping at every deadline on the way
    takeover                     let another broker lead the partition, which reads the log again
    group                        show the group

A trace has a line per record, answer and change of state; a request without an answer is parked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.group_records.classic import decode_group_value
from kraftrio.wire.messages.groups import JoinGroupResponse, SyncGroupResponse
from tests.unit.broker.coordinator.groups.group_context import GroupContext


class GroupScript:
    """The group of a scenario, with its members by name."""

    def __init__(self) -> None:
        self._context = GroupContext()
        self._ids: dict[str, str] = {}
        self._parked: dict[int, tuple[str, str]] = {}  # by ticket: who asked what
        self._logged = 0
        self._state = self._context.state

    def run(self, command: str) -> Iterator[str]:
        """Run a command; yield the lines of its trace."""
        name, *words = command.split()
        commands: dict[str, Callable[..., Iterator[str]]] = {
            "delay": self._delay,
            "join": self._join,
            "sync": self._sync,
            "heartbeat": self._heartbeat,
            "leave": self._leave,
            "wait": self._wait,
            "takeover": self._take_over,
            "group": self._show,
        }
        yield from commands[name](*words)
        yield from self._effects()

    # ---- commands

    def _delay(self, delay_ms: str) -> Iterator[str]:
        self._context.properties.group_initial_rebalance_delay_ms = int(delay_ms)
        return iter(())

    def _join(self, name: str, *words: str) -> Iterator[str]:
        options = dict(word.split("=") for word in words)
        ticket = self._context.send_join(
            self._ids.get(name, ""),
            session_timeout_ms=int(options.get("session", "10000")),
            rebalance_timeout_ms=int(options.get("rebalance", "60000")),
            protocols=[(p, b"") for p in options.get("protocols", "range").split(",")],
            client_id=name,
        )
        self._parked[ticket] = (name, "join")
        return iter(())

    def _sync(self, name: str, *words: str) -> Iterator[str]:
        assignments = {}
        for word in words:
            member, text = word.split("=")
            assignments[self._ids[member]] = text.encode()
        self._parked[self._context.send_sync(self._ids[name], assignments)] = (name, "sync")
        return iter(())

    def _heartbeat(self, name: str, *generation: str) -> Iterator[str]:
        generation_id = int(generation[0]) if generation else None
        error = self._context.heartbeat(self._ids[name], generation_id=generation_id)
        yield f"{name:5} heartbeat {error.name}"

    def _leave(self, name: str) -> Iterator[str]:
        (error,) = self._context.leave((self._ids[name], None))
        yield f"{name:5} leave     {error.name}"

    def _wait(self, delay_ms: str) -> Iterator[str]:
        self._context.advance(float(delay_ms))
        return iter(())

    def _take_over(self) -> Iterator[str]:
        self._context = self._context.reload()
        self._parked.clear()
        return iter(())

    def _show(self) -> Iterator[str]:
        context = self._context
        yield f"state {context.state}"
        if context.state != "absent":
            group = context.group
            yield f"generation {group.generation_id}"
            for member_id, member in group.members.items():
                yield f"member {self._name(member_id)} assignment={member.assignment.decode()!r}"

    # ---- traces

    def _effects(self) -> Iterator[str]:
        """Show what has happened since the last time."""
        log = self._context.log
        for record in log[self._logged :]:
            yield f"log   {self._record(record.value)}"
        self._logged = len(log)
        replies = self._context.replies
        for ticket in [ticket for ticket in self._parked if ticket in replies]:
            name, kind = self._parked.pop(ticket)
            yield f"{name:5} {kind:9} {self._answer(name, replies[ticket])}"
        if self._context.state != self._state:
            self._state = self._context.state
            yield f"group           {self._state}"

    def _record(self, value: bytes | None) -> str:
        if value is None:
            return "the group is removed"
        group = decode_group_value(value)
        members = ",".join(self._name(member.member_id) for member in group.members) or "none"
        return f"generation={group.generation} protocol={group.protocol} members={members}"

    def _answer(self, name: str, response: JoinGroupResponse | SyncGroupResponse) -> str:
        error = ErrorCode(response.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            assert isinstance(response, JoinGroupResponse)
            self._ids[name] = response.member_id
        if error is not ErrorCode.NONE:
            return error.name
        if isinstance(response, SyncGroupResponse):
            return f"NONE assignment={response.assignment.decode()!r}"
        members = ",".join(self._name(member.member_id) for member in response.members) or "-"
        return (
            f"NONE generation={response.generation_id} leader={self._name(response.leader)}"
            f" protocol={response.protocol_name} members={members}"
        )

    def _name(self, member_id: str) -> str:
        return next(name for name, known in self._ids.items() if known == member_id)
