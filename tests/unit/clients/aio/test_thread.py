"""The clients' thread: it is there while clients use it, and whose turn it is."""

from __future__ import annotations

import os
import threading

import pytest
import trio

from kraftrio.clients.aio.thread import ClientThread
from kraftrio.clients.errors import ClosedError
from tests.unit.clients.aio.threads import client_threads


def test_there_is_one_thread_from_the_first_user_to_the_last() -> None:
    """It is not a daemon, and has ended when the last one has left."""
    first = ClientThread.enter()
    second = ClientThread.enter()
    (thread,) = client_threads()
    assert first is second and not thread.daemon
    first.leave()
    assert client_threads() == [thread]
    second.leave()
    assert not client_threads()
    third = ClientThread.enter()
    third.leave()
    assert third is not first and not client_threads()


def test_a_task_holds_the_lock_while_it_runs() -> None:
    """Who has it sees nothing half done, and holds up every task."""
    thread = ClientThread.enter()
    ran = threading.Event()
    with thread.lock:
        thread.token.run_sync_soon(ran.set)
        assert not ran.wait(0.05), "a task ran while another thread had the lock"
    assert ran.wait(10)

    def twice() -> str:
        with thread.lock:  # a task that has it may take it again
            return threading.current_thread().name

    assert trio.from_thread.run_sync(twice, trio_token=thread.token) == "kraftrio-clients"
    thread.leave()


def test_a_forked_process_has_none_of_it() -> None:
    """What was open is closed there; the process may have a thread of its own."""
    thread = ClientThread.enter()
    pid = os.fork()
    if pid == 0:
        status = 1
        with pytest.raises(ClosedError, match="before this process was forked"), thread.lock:
            pass
        with pytest.raises(ClosedError, match="before this process was forked"):
            thread.check_process()
        own = ClientThread.enter()
        if own is not thread and len(client_threads()) == 1:
            own.leave()
            status = 0
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    thread.check_process()
    thread.leave()
