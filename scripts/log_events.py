"""What each event in a broker's log means, and what to do about it; `make_docs.py` makes a page of it.

Owns the sheet, and `events`, which finds in the code where events are logged: their texts, levels and
components. A test holds the two together: every event of the level INFO or above has a line, and
every line an event. A line is for all events that begin with its text; `*` stands for what varies.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("base", "net", "kraft_meta", "broker", "kraftrio/commands")
_LEVELS = {"info": "INFO", "warning": "WARN", "error": "ERROR", "critical": "FATAL"}

# text | meaning | remedy (- : none is needed)
SHEET = """\
starting | The node begins to start: its release, Python, id, roles and the settings made; secrets are not shown. | -
started | Clients are served. | -
console served | Browsers find the console at this URL. | -
console cannot be served | The node goes on without it; the reason follows. | Correct console.client.config, or the files that it names.
stopping at once | A second signal ended the node without a clean stop. | The next start recovers its logs.
stopping | A signal asks for a graceful stop. | -
stopped: | The node ended by itself; the reason follows. | See the reason: a disk, or the controller's refusal.
stopped | The graceful stop is done. | -
the ready line cannot be written | Standard output is closed. | Only if something waits for that line.
few files may be open | The limit of open files is low. | Raise it (ulimit -n, LimitNOFILE=).
logs loaded | All logs are open; how many, how many directories were not stopped cleanly, how long it took. | -
* | A warning about a setting, at the start. | Correct or remove the setting.
event loop stalled | A turn of the event loop took longer than event.loop.stall.ms; the stack that held it follows. | Look at the disk if the stack ends in a file call; report it otherwise.
slow request | A request took longer than slow.request.ms: where the time went, and why. | See why: a replica that lags, a disk, a client that does not read.
metadata quorum lost | No leader of the metadata quorum for 2 s: nothing can change in the cluster. | See that a majority of the controllers runs and reach each other.
metadata quorum found | The quorum has a leader again, after a loss that was warned of. | -
metadata quorum | Another node is the active controller. | -
active controller | This node decides about the cluster now. | -
no longer the active controller | Another node decides from now on. | -
this voter has lost its log | It neither votes nor counts until it has caught up. | None if a majority of the others runs; else see recover-quorum.
this voter votes and counts again | It has caught up. | -
no leader is there to catch up with | A voter without its memory waits for a leader. | Start the other voters; if a majority lost its disks for good, see kraftrio recover-quorum.
no metadata yet | A new cluster waits for voters. | Start the voters that are named.
metadata log truncated | This node's metadata log had records that the leader's has not, as after a leader that failed. | -
metadata log cannot be written now | The disk of the metadata log has no room, or no file can be opened: changes and votes wait. | Make room; see the limit of open files.
metadata log can be written again | There is room. | -
snapshot written | A snapshot of the metadata was written. | -
snapshot installed | A snapshot was taken over from another node. | -
snapshot fetch interrupted | The download goes on elsewhere or later. | -
snapshot cannot be fetched | The other node refuses it. | See that both nodes run the same release.
a snapshot cannot be written now | The disk refuses it; it is tried again. | Look at the disk of the metadata log.
the metadata log cannot be cleaned now | There is no room, or no file, for the segment that follows; older ones stay until the next snapshot. | Make room; see the limit of open files.
the leader's snapshot is damaged | What was downloaded cannot be read. | Look at the disk of the leader.
registration lost, registering again | The controller does not know this broker any more. | None, unless somebody unregistered it by mistake.
heartbeat refused | The controller refuses this broker's heartbeats. | See the reason.
waiting to register | The controller does not take the registration yet. | See the reason; a broker with this id may still run.
the controller does not let this node in | It refuses the login or the certificate; this is tried again. | Correct the JAAS text, user or certificate.
the controller does not answer | A request to it got no answer in time. | Look at the active controller, and at the network.
no controller is left to move the leaderships away | This broker stops without handing over. | -
* is of cluster | Another node belongs to another cluster. | Correct controller.quorum.voters, or the data directory.
cluster id cannot be asked for | A node did not say which cluster it is of. | -
quorum node is reached again | A controller answers again. | -
quorum node cannot be reached | A controller does not answer. | See that it runs; the quorum works while a majority does.
broker registered | A broker is new in the cluster. | -
broker unfenced | A broker has caught up, and serves from now on. | -
broker fenced | The controller takes a broker for dead: it leads nothing. | See why it died or is cut off.
broker in controlled shutdown | A broker stops: its leaderships are moved away. | -
broker unregistered | A broker was removed; WARN if replicas are still placed on it. | Move these replicas to other brokers (kafka-reassign-partitions).
topic created | A topic was made. | -
topic deleted | A topic is gone, with its records. | -
partitions added | A topic has more partitions; keys go to others from now on. | -
topic not created | A topic that a client asked for was not made. | See the reason; auto.create.topics.enable turns this off.
settings changed | Settings of a topic, broker, group or of client metrics were changed. | -
feature levels changed | Features were turned on or off. | -
reassignment begun | Replicas of partitions are being moved. | -
reassignment ended | The replicas are in their new places, or the reassignment was cancelled. | -
leaders moved | Partitions have another leader; from which broker, how many, the first of them. | -
unclean leader election | A replica leads that may lack records, as the topic's settings allow. | Count on lost records; see why all in-sync replicas were gone.
partitions without a leader | Nobody can write or read them. | Start the brokers that hold their in-sync replicas.
partitions have a leader again | They can be written and read. | -
member joined | A member came into a group. | -
member left | A member said that it leaves. | -
member expired | A member sent no heartbeat in time, or did not rejoin in time. | See why the client hangs: long work between polls (max.poll.interval.ms), pauses, the network.
group rebalancing | A classic group asks its members to join again; the reason. | If it is often: static members, longer sessions, or the consumer protocol.
group rebalanced | A generation, or a new target assignment, has begun. | -
* loaded partitions | A coordinator has read its partitions, and serves them. | -
load failed | A coordinator could not read a partition; it tries again where the disk is to blame. | See the reason; look at that partition's disk.
record skipped | A record of an internal topic cannot be read. | Report it, with the record.
* failed partition= | A coordinator's record could not be written; the client sends its request again. | See the reason: replicas that are missing, a full disk.
transaction aborted | A transaction timed out, or its producer was replaced. | If it is the time: see why the application hangs.
no answer from coordinator | The coordinator of a transaction did not answer a broker. | Look at that broker.
state of share partition is unusable | What was kept of a share partition makes no sense: it is not served. | Report it; altering the group's offsets there begins again.
state of share partition was not kept | Acknowledgements could not be written; records may be delivered again. | See the reason.
share partitions not initialized | Share partitions wait for their coordinator. | See the reason; it is tried again.
no answer from share coordinator | The state of share partitions could not be read or written. | Look at that broker.
redundant records not deleted | Old records of the share coordinator stay for now. | See the reason.
broker not reached | Another broker does not answer; what for, and why. | See that it runs, and that inter.broker.listener.name reaches it.
replication interrupted | A leader cannot be reached: its partitions are not copied meanwhile. | See that this broker runs.
replication resumed | It is reached again. | -
replication * | A partition cannot be copied now; the error. | None if it resumes; else see the error.
truncate | A follower drops records that its leader does not have. WARN if they were committed. | At WARN: see why; an unclean election is the usual cause.
propose isr | A leader asks for another ISR. | If followers leave often: their disks, network, load.
isr proposal refused | The controller has decided otherwise meanwhile. | -
isr proposals failed | The controller cannot be asked; it is tried again. | See the reason.
unexpected answer to isr proposals | The controller answered about what was not asked. | Report it.
replica directories not assigned | The controller does not know yet where replicas lie; it is tried again. | See the reason.
storage error | A disk refused a call for a partition. | Look at the disk.
log directory is running full | Less room than log.dirs.free.bytes.warning. | Make room: retention, deletion, a larger disk.
log directory has room again | There is more room than log.dirs.free.bytes.warning again. | -
log directory is full | There is no room left: the leaderships move away. | Make room.
log directory has space again | Writing works again. | -
log directory * is offline | A disk failed: its replicas are out of service on this broker. | Replace the disk, and restart the broker.
log directory * cannot be written now | A checkpoint did not fit; it is tried again. | Make room.
log directory * can be written again | The checkpoint was written. | -
ignore * | Something that is no log lies in a log directory. | Remove it if nobody needs it.
log of another topic kept as | A folder belongs to a topic that was deleted and made again. | Remove it once its records are not needed.
stray log set aside | A log that the metadata does not place here is kept aside, and not served. | Remove it once its records are not needed.
future log without use removed | A copy for a move that nobody wants any more. | -
* is in two log directories | A replica was found twice; one is served. | Remove the one set aside once you have looked at it.
recovery of * | A log was repaired after an unclean stop, or cannot be. | Where it was truncated, a replica brings the records back.
cannot close * | A log could not be closed cleanly; its next start recovers it. | Look at the disk.
cannot remove * | A file stays for now. | Look at the disk and its rights.
cannot rename * | A folder keeps its name for now. | Look at the disk and its rights.
cannot truncate * | What a failed write left is removed later. | Look at the disk.
rebuild indexes of * | An index did not fit its segment, and is rebuilt. | -
rebuild the transaction index of | Likewise, of aborted transactions. | -
drop producer snapshot | A damaged snapshot is not used; it is rebuilt. | -
damaged batch in | A record batch fails its checksum. | Look at the disk; a replica brings the records back.
damage in * | A segment is damaged. | Look at the disk; a replica brings the records back.
replica move started | A replica is copied to another log directory. | -
replica move finished | It is served from there. | -
replica move abandoned | It stays where it was. | See the reason.
replica move delayed | It continues later. | See the reason: room, as a rule.
cleaned | A log was compacted. | -
cleaning aborted | The log changed during the compaction, which is done again later. | -
cannot be cleaned | The compaction has given up a partition. | Look for damage there (kraftrio log verify).
cleaning postponed | No room for the compaction's copy. | Make room.
retention deleted segments | Old segments are gone. | -
connection limit reached | As many connections as max.connections: others wait. | Raise it, or find the client with so many.
connections refused | A client has more connections than it may. | Find that client; see max.connections.per.ip.
connection refused | A client was not let in; the reason. | See the reason: certificate, login.
connection closed to make room | A broker's connection needed the place of a client's. | Raise max.connections.
connection closed | A client broke the protocol, or may not send this; the reason. | See the reason.
cannot accept a connection | The system refuses it: open files, memory. | Raise the limit of open files.
request failed, connection closed | A fault of the broker met this request; the traceback follows. | Report it.
denied | A principal may not do what it asked for. | Grant it (kafka-acls), if it should be able to.
login refused | A client could not log in; the reason. | See the reason: user, password, mechanism.
certificates renewed | The files of a listener's certificates were read again. | -
certificates not renewed | They could not be read: the former ones stay in use. | Correct the files before the former expire.
tokens are not signed | A listener accepts tokens that anybody can make. | Never in production.
keys of tokens not read | The provider's keys could not be read. | See that the address is right and answers.
"""


class Line(NamedTuple):
    """A line of the sheet."""

    text: str
    meaning: str
    remedy: str


class LogEvent(NamedTuple):
    """An event, where it is logged."""

    component: str
    level: str
    text: str
    place: str


def lines() -> list[Line]:
    """The sheet."""
    return [Line(*(part.strip() for part in line.split(" | "))) for line in SHEET.splitlines()]


def line_for(text: str) -> Line | None:
    """The line of an event: the longest that it begins with."""
    found = [line for line in lines() if text == line.text or text.startswith(line.text)]
    found = [line for line in found if line.text != "*" or text == "*"]
    return max(found, key=lambda line: len(line.text), default=None)


def events() -> Iterator[LogEvent]:
    """Find the events of the level INFO or above in the code."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text())
            component = _component(tree, path)
            for node in ast.walk(tree):
                if isinstance(node, ast.Call):
                    place = f"{path.relative_to(ROOT)}:{node.lineno}"
                    for level, text in _logged(node):
                        yield LogEvent(component, level, text, place)


def _component(tree: ast.Module, path: Path) -> str:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger":
            names = _texts(node.args[0]) if node.args else []
            return names[0].rpartition(".")[2] if names else path.stem
    return {"cluster_events": "cluster"}.get(path.stem, "groups")


def _logged(call: ast.Call) -> Iterator[tuple[str, str]]:
    """What a call logs: levels and texts."""
    name = ast.unparse(call.func)
    receiver, _, method = name.rpartition(".")
    is_logger = receiver.endswith(("_log", "_logger"))
    if is_logger and method in _LEVELS:
        yield from ((_LEVELS[method], text) for text in _texts(call.args[0]))
    elif is_logger and method == "log":
        levels = re.findall(r"logging\.(INFO|WARNING|ERROR)", ast.unparse(call.args[0]))
        level = " or ".join("WARN" if one == "WARNING" else one for one in levels) or "WARN"
        yield from ((level, text) for text in _texts(call.args[1]))
    elif name in ("log_event", "log_with_stack"):
        level = ast.unparse(call.args[1]).rpartition(".")[2]
        shown = {"WARNING": "WARN"}.get(level, level)
        yield from ((shown, text) for text in _texts(call.args[2]))
    elif name == "ClusterEvent":
        warns = next((k.value for k in call.keywords if k.arg == "is_warning"), None)
        level = "INFO" if warns is None else "WARN"
        if warns is not None and not isinstance(warns, ast.Constant):
            level = "INFO or WARN"
        yield from ((level, text) for text in _texts(call.args[0]))
    elif method == "_log_failure" and any(" " in text for text in _texts(call.args[0])):
        yield from (("WARN", text) for text in _texts(call.args[0]))
    elif (method == "note" and receiver == "outcome") or name == "note_member":
        yield from (("INFO", text) for text in _texts(call.args[0]))


def _texts(node: ast.expr) -> list[str]:
    """The texts that an expression may be, with * for what varies."""
    if isinstance(node, ast.IfExp):
        return _texts(node.body) + _texts(node.orelse)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [re.sub(r"%[sdrg]", "*", node.value).replace("%%", "%")]
    return []
