"""The trace of nodes with real sockets: what is done to them, and what they log.

Owns: `NodeTrace`, whose lines are as those of a world in virtual time, and `NodeLife`, by which a
log line is known to be of a node. Rules:
1. The newest lines are kept.
2. While nodes run, their loggers let INFO pass, for the trace alone: what is below the level that
   the program has set goes no further.

Called by: `local_nodes`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque

from kraftrio.base.logging_setup import event_text
from kraftrio.testing.simulation.incarnation import Incarnation, current

_KEPT_LINES = 10_000
_OF_OTHERS = ("kraftrio.clients", "kraftrio.console")


class NodeTrace:
    """See the module; any thread may add lines."""

    def __init__(self) -> None:
        self.newest: deque[str] = deque(maxlen=_KEPT_LINES)
        self.count = 0
        self._began_s = time.monotonic()

    def now_s(self) -> float:
        """The seconds since it began."""
        return time.monotonic() - self._began_s

    def add(self, who: str, kind: str, text: str) -> None:
        """Add a line."""
        self.count += 1
        self.newest.append(f"{self.now_s():.6f} {who} {kind} {text}")

    def forget(self) -> None:
        """Begin again: what has happened so far is of no interest any more."""
        self.newest.clear()
        self.count = 0

    @property
    def is_whole(self) -> bool:
        """Whether every line is kept."""
        return self.count == len(self.newest)


class NodeLife(Incarnation):
    """One life of a node with real sockets."""

    def __init__(self, name: str, number: int, trace: NodeTrace) -> None:
        super().__init__(name, number)
        self.trace = trace


class _LogOfNodes(logging.Filter):
    """Sits on the brokers' loggers; lets pass what the program wants to see."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._user_count = 0
        self._levels: dict[str, int] = {}  # of loggers, before

    def begin(self) -> None:
        """Trace nodes from now on, in all loggers that there are by now."""
        with self._lock:
            self._user_count += 1
            names = [name for name in logging.root.manager.loggerDict if _is_of_brokers(name)]
            for name in names:
                logger = logging.getLogger(name)
                if name not in self._levels and logger.getEffectiveLevel() > logging.INFO:
                    self._levels[name] = logger.level
                    logger.setLevel(logging.INFO)
                if self not in logger.filters:
                    logger.addFilter(self)

    def end(self) -> None:
        """One cluster less; with the last one, all is as before."""
        with self._lock:
            self._user_count -= 1
            if self._user_count:
                return
            for name in logging.root.manager.loggerDict:
                if _is_of_brokers(name):
                    logging.getLogger(name).removeFilter(self)
            for name, level in self._levels.items():
                logger = logging.getLogger(name)
                if logger.level == logging.INFO:  # no other one was set meanwhile
                    logger.setLevel(level)
            self._levels.clear()

    def filter(self, record: logging.LogRecord) -> bool:
        life = current.get()
        if isinstance(life, NodeLife) and life.is_alive:
            kind = record.levelname.lower()[:5]
            life.trace.add(life.name, kind, f"{record.name[9:]}: {event_text(record)}")
        logger = logging.getLogger(record.name)
        if self._levels.get(record.name) != logging.NOTSET or logger.level != logging.INFO:
            return True
        assert logger.parent is not None
        return record.levelno >= logger.parent.getEffectiveLevel()


def _is_of_brokers(name: str) -> bool:
    return name.startswith("kraftrio.") and not name.startswith(_OF_OTHERS)


log_of_nodes = _LogOfNodes()
