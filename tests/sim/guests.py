"""Rights that come and go in a cluster under faults, and a guest who tries what it may.

Owns: `GuardedTopic`: an administrator changes ACLs and the guest's password, the guest logs in at
any broker, writes and reads. What must hold, by what the broker knew at the time (`rights`)
1. A login is accepted only if the broker knew this password at some instant since it was begun, and
   is refused only if at some it did not.
2. The same for requests and the rights that they need.
3. No record is read that was made when the broker had revoked the right for good: also not by a
   request that came before that, and waited.
4. In the end every node knows what was asked for last, and every broker acts by it.

Called by: `simulation`, for seeds whose cluster is secured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from kraftrio.net.connection import (
    AuthenticationFailed,
    Connection,
    ConnectionLost,
    open_connection,
)
from kraftrio.net.transport import Network
from kraftrio.testing.simulation.cluster import BROKER_PORT, SimCluster
from kraftrio.testing.simulation.world import START_WALL_MS, SimulationFailure
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.data import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kraftrio.wire.messages.security import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
)
from kraftrio.wire.protocol.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from kraftrio.wire.records.batch import Record, build_batch
from tests.sim.client import NAMED, SimClient, Unavailable
from tests.sim.logins import as_user, delete, upsert
from tests.sim.rights import GUARDED, GUEST, Rights, RightsHistory, rights_of
from tests.sim.stage import values_of

_READ, _WRITE, _ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL
_ALLOW, _DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
_LITERAL, _PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
_PASSWORDS = ("one", "two", "three")
_TIMEOUT_S = 5.0
_ANSWERED_S = 10.0
_STEADY_S = 2.0  # no request of the administrator's is under way after that


def _acl(
    name: str, pattern: PatternType, operation: AclOperation, permission: AclPermissionType
) -> AclCreation:
    return AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=f"User:{GUEST}",
        host="*",
        operation=operation,
        permission_type=permission,
    )


_ACLS = (
    _acl(GUARDED, _LITERAL, _READ, _ALLOW),
    _acl(GUARDED, _LITERAL, _WRITE, _ALLOW),
    _acl(GUARDED[:3], _PREFIXED, _ALL, _ALLOW),
    _acl("*", _LITERAL, _READ, _DENY),
    _acl(GUARDED[:5], _PREFIXED, _WRITE, _DENY),
)


class GuardedTopic:
    """See the module.

    Args:
        admin, writer: super users.
    """

    def __init__(
        self, cluster: SimCluster, history: RightsHistory, admin: SimClient, writer: SimClient
    ) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._history = history
        self._admin = admin
        self._writer = writer
        self._rng = self._world.rng("guest")
        self._end_offset = 0
        self._networks = {
            password: as_user(GUEST, password)(cluster.new_host(f"guest-{password}"))
            for password in _PASSWORDS
        }
        self._login_count = 0  # answered
        self._request_count = 0

    def counts(self) -> str:
        """Tell how much was answered."""
        return f"logins={self._login_count} guarded={self._request_count}"

    @property
    def work(self) -> tuple[Callable[[], Any], ...]:
        """What goes on while there are faults."""
        return self.administer, self.write, self.visit

    # -- the administrator ------------------------------------------------------------------------

    async def administer(self) -> None:
        """Change rights until cancelled."""
        rng = self._rng
        while True:
            await trio.sleep(rng.expovariate(2))
            await self._change(
                rng.choice(
                    (
                        CreateAclsRequest(creations=[rng.choice(_ACLS)]),
                        _deletion(rng.choice(_ACLS)),
                        _upsert(rng.choice(_PASSWORDS)),
                        delete(GUEST),
                    )
                )
            )

    async def _change(self, request: Any) -> None:
        try:
            response = await self._admin.call_any(request)
            self._admin.note(f"{type(request).__name__}: {response}")
        except Unavailable as error:
            self._admin.note(f"{type(request).__name__}: {error}")

    # -- records ----------------------------------------------------------------------------------

    async def write(self) -> None:
        """Let there be records to read, until cancelled."""
        client = self._writer
        while True:
            try:
                leader, _ = await client.leader(GUARDED, 0)
                response = await client.call_node(leader, self._produce_request())
                answer = response.responses[0].partition_responses[0]
                if answer.error_code == ErrorCode.NONE:
                    self._end_offset = answer.base_offset + 1
                else:
                    client.forget(GUARDED)
            except Unavailable:
                client.forget(GUARDED)
            await client.pause()

    def _produce_request(self) -> ProduceRequest:
        """A record with the time at which it was made."""
        now_s = self._world.now_s
        record = Record(0, START_WALL_MS + int(now_s * 1000), None, repr(now_s).encode())
        partition = PartitionProduceData(index=0, records=memoryview(build_batch([record])))
        topic = TopicProduceData(name=GUARDED, partition_data=[partition])
        return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])

    # -- the guest --------------------------------------------------------------------------------

    async def visit(self) -> None:
        """Try this and that until cancelled."""
        while True:
            await trio.sleep(self._rng.expovariate(2))
            node = self._rng.choice(self._cluster.brokers)
            await self._try(node.node_id, self._rng.choice(_PASSWORDS), 5)

    async def _try(self, node_id: int, password: str, requests: int) -> bool:
        """Log in at a broker and ask for this and that; return whether all was answered."""
        begin_s = self._world.now_s
        network: Network = self._networks[password]
        try:
            async with open_connection(
                network, f"n{node_id}", BROKER_PORT, client_id=GUEST, connect_timeout_s=_TIMEOUT_S
            ) as connection:
                self._judge_login(node_id, password, begin_s, is_refused=False)
                for number in range(requests):
                    await (self._read, self._write)[number % 2](connection, node_id)
        except AuthenticationFailed:
            self._judge_login(node_id, password, begin_s, is_refused=True)
        except ConnectionLost as lost:
            self._world.note(GUEST, "client", str(lost))
            return False
        return True

    async def _write(self, connection: Connection, node_id: int) -> None:
        begin_s = self._world.now_s
        response = await self._call(connection, self._produce_request())
        code = response.responses[0].partition_responses[0].error_code
        self._judge(node_id, "write", lambda rights: rights.may_write, begin_s, code)

    async def _read(self, connection: Connection, node_id: int) -> None:
        begin_s = self._world.now_s
        partition = FetchPartition(
            partition=0, fetch_offset=self._end_offset, partition_max_bytes=1 << 20
        )
        topic = FetchTopic(topic=GUARDED, partitions=[partition])
        wait_ms = self._rng.choice((0, 500, 3000))
        request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, session_epoch=-1, topics=[topic])
        response = await self._call(connection, request)
        answer = response.responses[0].partitions[0]
        self._judge(node_id, "read", _may_read, begin_s, answer.error_code)
        for made_s in map(float, values_of(answer.records)):
            if not self._history.held(node_id, _may_read, made_s, self._world.now_s):
                raise SimulationFailure(
                    f"n{node_id} let the guest read what was made at {made_s}, when it had revoked"
                    " the right to that"
                )

    async def _call(self, connection: Connection, request: Any) -> Any:
        return await connection.call(request, NAMED[type(request).__name__], _ANSWERED_S)

    # -- what must hold ---------------------------------------------------------------------------

    def _judge_login(
        self, node_id: int, password: str, begin_s: float, *, is_refused: bool
    ) -> None:
        self._login_count += 1
        salt = password.encode()
        self._must_agree(
            node_id,
            f"log in by {password!r}",
            lambda rights: rights.salt == salt,
            begin_s,
            is_refused,
        )

    def _judge(
        self,
        node_id: int,
        what: str,
        is_right: Callable[[Rights], bool],
        begin_s: float,
        code: int,
    ) -> None:
        self._request_count += 1
        is_refused = code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        self._must_agree(node_id, what, is_right, begin_s, is_refused)

    def _must_agree(
        self,
        node_id: int,
        what: str,
        is_right: Callable[[Rights], bool],
        begin_s: float,
        is_refused: bool,
    ) -> None:
        """Rules 1 and 2."""
        now_s = self._world.now_s
        if not self._history.held(
            node_id, lambda rights: is_right(rights) != is_refused, begin_s, now_s
        ):
            raise SimulationFailure(
                f"n{node_id} {'did not let' if is_refused else 'let'} the guest {what}, and"
                f" all the time since {begin_s:.6f} it knew better: {self._history.newest(node_id)}"
            )

    # -- the end ----------------------------------------------------------------------------------

    async def finish(self, deadline_s: float) -> None:
        """Rule 4: set the rights for the last time, and see that every broker acts by them."""
        rng = self._rng
        kept = [acl for acl in _ACLS if rng.random() < 0.5]
        password = rng.choice(_PASSWORDS)
        requests: list[Any] = [_deletion(acl) for acl in _ACLS if acl not in kept]
        requests += [CreateAclsRequest(creations=kept), _upsert(password)]
        with trio.move_on_after(deadline_s):
            while not await self._is_settled(kept, password):
                for request in requests:
                    await self._change(request)
            for node in self._cluster.brokers:
                for one in _PASSWORDS:
                    await self._try_until_answered(node.node_id, one)
            return
        raise SimulationFailure(f"not all nodes have the guest's last rights in {deadline_s:g} s")

    async def _try_until_answered(self, node_id: int, password: str) -> None:
        while not await self._try(node_id, password, 2):
            await self._admin.pause()

    async def _is_settled(self, kept: list[AclCreation], password: str) -> bool:
        """Whether all nodes know the last rights, and go on knowing them."""

        def is_known() -> bool:
            return all(
                node.node is not None
                and len(node.quorum.image.acls) == len(kept)
                and rights_of(node.quorum.image).salt == password.encode()
                for node in self._cluster.nodes.values()
            )

        with trio.move_on_after(_STEADY_S):
            while not is_known():  # noqa: ASYNC110 (nobody could set an event)
                await trio.sleep(0.1)
        await trio.sleep(_STEADY_S)
        return is_known()


def _may_read(rights: Rights) -> bool:
    return rights.may_read


def _upsert(password: str) -> Any:
    """Rights tell passwords apart by their salts."""
    return upsert(GUEST, password, password.encode())


def _deletion(acl: AclCreation) -> DeleteAclsRequest:
    meant = DeleteAclsFilter(
        resource_type_filter=acl.resource_type,
        resource_name_filter=acl.resource_name,
        pattern_type_filter=acl.resource_pattern_type,
        principal_filter=acl.principal,
        host_filter=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
    return DeleteAclsRequest(filters=[meant])
