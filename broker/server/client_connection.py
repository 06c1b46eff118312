"""One client's connection: requests in, responses out in their order, with bounded memory.

Per connection one reader task and one writer task share a `ServerConnection`:

- The reader receives what is there, handles every whole request of it synchronously, and sends
  all responses that are ready with one call.  A read that leaves room, and ends with a request, has
  taken all that there was: the reader then waits for more without asking the kernel again.
- The writer sleeps until a parked request (long poll, acks=all, a group join) gets its response
  or until a send was partial; then it sends what is ready, in request order.

Raw non-blocking sockets (the port `net/transport.Network` makes and waits for them), no Trio
stream, no object per request but its slot: several times the requests per second of a stream with
one send per response.

A client that has used more than its quota is answered, and then no request is taken from it for as
long as it has to wait (`throttling`).

Memory
- Records that lie in files are sent from there as the socket takes them (`SendQueue`), in turns of
  bounded size; what the disk has to be asked for is loaded by a worker thread, for readers in
  order while what comes before it is sent.
- Requests are handled one ahead of what the socket takes.  Behind a parked one they continue, up to
  a limit of requests and of encoded bytes; behind one that is worked on in slices they wait.
- Large frames, and responses that may be large, wait for the memory that all connections share
  (`memory_budget`).

A turn of the event loop handles requests for a few milliseconds at most, then other tasks run.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from kraftrio.base.deferred import Deferred
from kraftrio.broker.server.context import ClientInfo
from kraftrio.broker.server.dispatch import Dispatcher, Encoder
from kraftrio.broker.server.limits import ServerLimits
from kraftrio.broker.server.memory_budget import FREE_BYTES
from kraftrio.broker.server.resources import ServerResources
from kraftrio.broker.server.response_queue import AHEAD_BYTES, ResponseQueue
from kraftrio.broker.server.usage.request_figures import RequestTimes
from kraftrio.net.send_queue import Push, SendQueue
from kraftrio.net.transport import Network, Socket
from kraftrio.wire.errors import RemoteProtocolError
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.protocol.framing import RequestStart, ResponseSlot, ServerConnection

_HELD_LIMIT_BYTES = 256 * 1024  # a reader pauses while so much is encoded and not taken
_TURN_S = 0.005  # how long a turn handles requests

# Requests whose responses are small in any cluster, or whose records stay in files.
_SMALL_ANSWERS = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.HEARTBEAT,
        ApiKey.OFFSET_COMMIT,
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.LEAVE_GROUP,
        ApiKey.API_VERSIONS,
        ApiKey.INIT_PRODUCER_ID,
    }
)
_ESTIMATED_BYTES = 2 * FREE_BYTES  # of a response that may be large, until it is encoded


class PeerGone(Exception):
    """The socket failed: the peer reset the connection, or cannot be reached any more."""


class AcceptedConnection:
    """One client's socket with its reader and writer."""

    __slots__ = (
        "_closed",
        "_dispatcher",
        "_ended",
        "_given_up",
        "_limits",
        "_network",
        "_nursery",
        "_protocol",
        "_received",
        "_request_memory",
        "_resources",
        "_response_memory",
        "_responses",
        "_sending",
        "_sock",
        "_time_s",
        "_wake_reader",
        "_wake_writer",
        "client",
        "last_active",
    )

    def __init__(
        self,
        network: Network,
        sock: Socket,
        client: ClientInfo,
        dispatcher: Dispatcher,
        limits: ServerLimits,
        resources: ServerResources,
        scratch: bytearray,
    ) -> None:
        self._network = network
        self._sock = sock
        self._dispatcher = dispatcher
        self._limits = limits
        self._resources = resources
        self._protocol = ServerConnection(limits.socket_request_max_bytes, scratch)
        self._sending = False  # the writer owns the socket's sending side
        self._ended = Push.DONE  # how the reader's last push ended
        self._wake_writer = trio.Event()
        self._wake_reader = trio.Event()  # what it waits for may have come
        self._request_memory = resources.request_memory.share(self._on_memory, self._give_up)
        self._response_memory = resources.response_memory.share(self._on_memory, self._give_up)
        self._responses = ResponseQueue(
            self._protocol,
            SendQueue(sock, network.file_sender(sock)),
            self._response_memory,
            resources,
        )
        self._received = 0  # when, the last bytes
        self._closed = False
        self._given_up = False
        self.client = client
        client.end = self.close
        self._time_s = trio.lowlevel.current_clock().current_time  # of this run, asked at once
        self.last_active = self._time_s()

    async def serve(self) -> None:
        """Serve requests until the peer closes, breaks the protocol, or we are cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._write)
                await self._read_requests()
                nursery.cancel_scope.cancel()
            if self._given_up:
                raise RemoteProtocolError(
                    "it held memory that others waited for, and made no progress"
                )
        finally:
            self._closed = True
            self._responses.clear()
            self._forget_parked()
            self._protocol.discard()
            self._request_memory.close()
            self._response_memory.close()
            self._sock.close()
            self.client.closed()

    def close(self) -> None:
        """Make both tasks end soon."""
        if not self._closed:
            self._closed = True
            self._network.notify_closing(self._sock)
            self._wake_writer.set()
            self._wake_reader.set()

    @property
    def is_idle(self) -> bool:
        """True when no request of this connection is being served, or its peer takes nothing."""
        return not self._protocol.slots or bool(self._responses.unsent.size_bytes)

    @property
    def current(self) -> RequestStart | None:
        """The request that is being served, or whose response is being encoded."""
        return self._responses.current

    @property
    def received_bytes(self) -> int:
        """What has arrived so far."""
        return self._request_memory.moved_bytes

    @property
    def sent_bytes(self) -> int:
        """What the socket has taken so far."""
        return self._response_memory.moved_bytes

    def _give_up(self) -> None:
        self._given_up = True
        self.close()

    # -- reader ---------------------------------------------------------------------------------

    async def _read_requests(self) -> None:
        sock, protocol = self._sock, self._protocol
        is_drained = False  # the last read took all that there was to come
        while not self._closed:
            if is_drained:
                await self._network.wait_readable(sock)
            else:
                await trio.lowlevel.checkpoint()
            if self.client.muted_until_s:
                await self._sit_out()
            if protocol.growth_bytes:
                await self._wait_for_memory_of_frame()
            try:
                has_room = self._resources.request_memory.has_room
                buffers = protocol.receive_buffers(None if has_room else FREE_BYTES)
            except RemoteProtocolError:
                await self._send_all_ready()
                raise
            room_bytes = sum(map(len, buffers))
            try:
                count = sock.recvmsg_into(buffers)[0]
            except BlockingIOError:
                is_drained = True
                continue
            except OSError as error:
                raise PeerGone(str(error)) from error
            if count == 0:
                return
            self.last_active = now = self._time_s()
            self._received = self._resources.ticks_ns()
            self._request_memory.moved_bytes += count
            frames = protocol.bytes_received(count, buffers)
            # Of a frame that has begun the rest is on its way.
            is_drained = count < room_bytes and protocol.is_between_frames
            held_bytes = protocol.unfinished_bytes + sum(map(len, frames))
            if held_bytes > FREE_BYTES or self._request_memory.held_bytes:
                self._request_memory.hold(held_bytes)
            await self._serve_requests(frames, now + _TURN_S)
            if self.client.queued_work:  # its frame counts until that is done
                await self._wait_for_room()
            if self._request_memory.held_bytes:
                self._request_memory.hold(protocol.unfinished_bytes)
            self._send_ready()

    async def _serve_requests(self, frames: list[memoryview], turn_end: float) -> None:
        """Handle whole requests; let other tasks run when this turn is over."""
        responses = self._responses
        for frame in frames:
            if responses.encoded_bytes + responses.unsent.size_bytes >= AHEAD_BYTES:
                self._send_ready()
            if self._must_pause():
                self._send_ready()
                await self._wait_for_room()
            elif len(frames) > 1 and trio.current_time() > turn_end:
                self._send_ready()
                await trio.lowlevel.checkpoint()
                turn_end = trio.current_time() + _TURN_S
            try:
                start = self._dispatcher.start(frame)
                if (
                    not self._resources.response_memory.is_plentiful
                    and _may_be_large(start, len(frame))
                    and not self.client.is_peer
                ):
                    await self._wait_for_memory_of_answer()
                if self._closed:
                    return
                self._serve_request(frame, start)
            except RemoteProtocolError:
                await self._send_all_ready()
                raise

    def _serve_request(self, frame: memoryview, start: RequestStart) -> None:
        responses, ticks_ns = self._responses, self._resources.ticks_ns
        responses.current = start
        times = RequestTimes(start, self.client, self._received, ticks_ns(), len(frame))
        answer = self._dispatcher.handle(frame, start, self.client, times)
        times.handled = times.completed = ticks_ns()
        if answer is None:
            self._resources.requests.note(times, times.completed)
        elif isinstance(answer, Deferred):
            self._park(answer, times)
        elif self._is_next_to_send():
            responses.put_next(answer, times)
        else:
            slot = self._protocol.open_slot(start)
            slot.times = times
            responses.put(slot, answer)

    def _park(self, answer: Deferred[Encoder], times: RequestTimes) -> None:
        """Keep a request's place until there is an answer."""
        slot = self._protocol.open_slot(times.start)
        slot.times = times
        self._resources.requests.parked[times] = None
        answer.when_done(lambda encoder: self._fill(slot, encoder))

    def _is_next_to_send(self) -> bool:
        """Whether no response waits for its turn: the next one then needs no slot."""
        return not self._protocol.slots and not self._sending

    def _fill(self, slot: ResponseSlot, encoder: Deferred[Encoder]) -> None:
        times = slot.times
        times.completed = self._resources.ticks_ns()
        self._resources.requests.parked.pop(times, None)
        self._responses.put_later(slot, encoder)
        self._wake_writer.set()

    def _forget_parked(self) -> None:
        """Nobody waits for the answers any more."""
        for slot in self._protocol.slots:
            self._resources.requests.parked.pop(slot.times, None)

    def _must_pause(self) -> bool:
        protocol, responses = self._protocol, self._responses
        return (
            len(protocol.slots) >= self._limits.max_in_flight_requests
            or bool(self.client.queued_work)
            or self.client.muted_until_s > 0.0
            or responses.encoded_held_bytes + responses.unsent.held_bytes >= _HELD_LIMIT_BYTES
            or (self._sending and protocol.has_ready_response)
        )

    async def _reader_woken(self) -> None:
        self._wake_reader = trio.Event()
        await self._wake_reader.wait()

    async def _wait_for_room(self) -> None:
        while self._must_pause() and not self._closed:
            if self.client.muted_until_s:
                await self._sit_out()
            else:
                await self._reader_woken()

    async def _sit_out(self) -> None:
        """Take no request while the client has to wait; it keeps the memory that it has."""
        client, shares = self.client, (self._request_memory, self._response_memory)
        for share in shares:
            share.is_resting = True
        while not self._closed and trio.current_time() < client.muted_until_s:
            with trio.move_on_at(client.muted_until_s):
                await self._reader_woken()
        client.muted_until_s = 0.0
        for share in shares:
            share.is_resting = False

    async def _send_all_ready(self) -> None:
        """Send what is ready before a later request closes the connection (as in Kafka)."""
        self._send_ready()
        while not self._closed and self._sending:
            await self._reader_woken()

    # -- memory that all connections share ------------------------------------------------------

    def _on_memory(self) -> None:
        self._wake_reader.set()

    async def _wait_for_memory_of_frame(self) -> None:
        """Wait until the unfinished frame may grow."""
        self._request_memory.is_peer = self.client.is_peer
        while not self._closed and not self._request_memory.take(self._protocol.growth_bytes):
            await self._reader_woken()

    async def _wait_for_memory_of_answer(self) -> None:
        """Wait until a response that may be large may be made; nodes of the cluster do not wait."""
        while not self._closed and not self._response_memory.take(_ESTIMATED_BYTES):
            self._send_ready()
            await self._reader_woken()

    # -- writer ---------------------------------------------------------------------------------

    def _send_ready(self) -> None:
        """Send what is ready without waiting; what the kernel does not take is the writer's."""
        if self._sending:
            self._wake_writer.set()
        else:
            self._ended = self._push()
            if self._ended is not Push.DONE:
                self._sending = True
                self._wake_writer.set()

    def _push(self) -> Push:
        try:
            return self._responses.push()
        except OSError as error:
            raise PeerGone(str(error)) from error
        finally:
            ahead = self._responses.unsent.take_loading_ahead()
            if ahead is not None:
                self._nursery.start_soon(self._load, ahead)

    async def _write(self) -> None:
        """Send what the reader cannot: what was parked, and what the socket did not take."""
        while not self._closed:
            await self._wake_writer.wait()
            self._wake_writer = trio.Event()
            end = self._ended if self._sending else Push.PAUSED
            self._sending = True
            while not self._closed:
                await self._wait_to_push(end)
                end = self._push()
                self.last_active = self._time_s()
                if end is Push.DONE:
                    break
                if not self._must_pause():
                    self._wake_reader.set()
            self._sending = False
            self._wake_reader.set()

    async def _wait_to_push(self, end: Push) -> None:
        """Wait for what stopped the last push."""
        if end is Push.BLOCKED:
            await self._network.wait_writable(self._sock)
        elif end is Push.COLD:
            await self._load(self._responses.unsent.loading())
        else:
            await trio.lowlevel.checkpoint()

    async def _load(self, work: Callable[[], None]) -> None:
        async with self._resources.loads:
            await self._resources.run_in_thread(work)


def _may_be_large(start: RequestStart, frame_bytes: int) -> bool:
    """Whether the response to this request may take much memory."""
    if frame_bytes > FREE_BYTES:
        return start.api_key != ApiKey.PRODUCE
    return start.api_key not in _SMALL_ANSWERS
