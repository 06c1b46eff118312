"""What a user reads when something goes wrong: one plain sentence, and a status other than 0.

`PipelineError` carries such a sentence; the command line prints it and nothing else. `explain`
makes one out of what Spark, the clients or the system raise, by their own words: Spark hands over
the stack of a JVM as text, of which a user can act on one line at most. The rest stays in Spark's
log file, which the sentence names.

Only what is expected is said that way (`is_expected`): a `PipelineError`, what the clients and the
system raise, a Spark that does not start, and of Spark's other failures those whose cause is known
here or that refuse a setting. Anything else is a mistake of ours and comes out with its stack.
Callers catch `kinds()`, ask `is_expected`, and let the rest go.
"""

from __future__ import annotations

import re
import sys
from typing import Final

from kraftrio.wire.errors import KafkaError

_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded", re.IGNORECASE)
_DISK_IS_FULL: Final = (
    "the disk is full: no space left for the output, the checkpoint or Spark's own files"
)

# What in a failure's text points to its cause, and what the user reads instead. First match wins.
_CAUSES: Final[tuple[tuple[str, str], ...]] = (
    (
        r"Could not parse Master URL|Master must either be|Invalid master",
        "--master names no cluster that Spark knows (local[*], spark://HOST:PORT, ...)",
    ),
    (
        r"All masters are unresponsive|Application has been killed",
        "the Spark cluster that --master names does not answer",
    ),
    (
        r"Could not create the Java Virtual Machine|Invalid (maximum|initial) heap size",
        "Java refuses its options; see spark.driver.memory and spark.driver.extraJavaOptions",
    ),
    (
        r"Failed to create any local dir|Failed to get a temp directory",
        "Spark has no folder for its own files that it can write; see spark.local.dir",
    ),
    (
        r"JAVA_GATEWAY_EXITED|JAVA_HOME is not set|Java gateway process exited",
        "Java did not start: Spark needs Java 17 or 21 on PATH or in JAVA_HOME",
    ),
    (
        r"(?m)An error occurred while calling [\w.]+\w$|Py4JNetworkError"
        r"|Answer from Java side is empty|Error while (sending|receiving)"
        r"|trying to connect to the Java server",
        "Spark ended by itself (killed, or out of memory); the same command goes on from here",
    ),
    (
        r"OutOfMemoryError|Java heap space",
        "Spark is out of memory: give it more with --conf spark.driver.memory=4g, or take smaller"
        " batches with --max-offsets-per-trigger",
    ),
    (
        r"unresolved dependency|Failed to find data source: kafka|download failed",
        "Spark's Kafka connector cannot be fetched from Maven; give its jar files with --jars",
    ),
    (
        r"Permission denied|Mkdirs failed|Read-only file system",
        "a folder cannot be written: see --output and --checkpoint",
    ),
    (
        r"[Ss]ome data may have been lost|out of range with no configured reset|failOnDataLoss",
        "records that the checkpoint counts on are gone from the topic (deleted, or another topic"
        " of that name); start over with another --checkpoint and --output",
    ),
    (
        r"does not exist but expected|partitions.+gone|are gone\. Some data",
        "partitions that the checkpoint counts on are gone from the cluster; start over with"
        " another --checkpoint and --output",
    ),
    (
        r"(?s)Incomplete log file|Failed to read log file|malformed log|Unsupported log version"
        r"|stateful operator|STATE_STORE|Cannot (read|find).{0,80}(metadata|checkpoint)"
        r"|Error reading (delta|snapshot) file|state schema|StreamMetadata|Multiple streaming"
        r"|LOG_FILE|CHECKPOINT|Unrecognized token|Unexpected end-of-input"
        r"|java\.io\.EOFException|Stream is corrupted|StreamCorrupted",
        "the checkpoint is damaged or belongs to another query; give the right one, or start over"
        " with another --checkpoint and --output",
    ),
    (
        r"FAILED_READ_FILE|CANNOT_READ_FILE_FOOTER|is not a Parquet file",
        "a file in --output is damaged; start over with another --checkpoint and --output",
    ),
    (
        r"UnknownTopicOrPartition|topics? .*(do|does) not exist",
        "a topic of the pipeline is not there any more",
    ),
    (
        r"Timeout|TimedOut|Connection to node|Failed to get .*offsets|Disconnect|NotLeader"
        r"|Cannot fetch|Failed to construct kafka|NotCoordinator|CoordinatorNot|CoordinatorLoad"
        r"|TransactionInDoubt",
        "the brokers do not answer",
    ),
)


_OF_BROKERS = re.compile(_CAUSES[-1][0])


# Where Spark's exceptions are defined. While a module is not imported, nothing can raise its own.
_OF_SPARK: Final = (("py4j.protocol", "Py4JError"), ("pyspark.errors", "PySparkException"))
_REFUSED_SETTING: Final = (("pyspark.errors", "IllegalArgumentException"),)
# The frames of a stack name classes such as RpcTimeout, whatever the failure is about.
_FRAMES = re.compile(r"(?m)^\s*(at [\w.$/<]+\(.*\)|\.\.\. \d+ more)\s*$\n?")


class PipelineError(Exception):
    """A sentence for the user; everything else is in the log."""


class SparkStartError(Exception):
    """Spark did not start; what its log says of it."""


def kinds() -> tuple[type[Exception], ...]:
    """Return the kinds of exceptions among which expected failures are, for an except clause."""
    return (
        PipelineError,
        SparkStartError,
        KafkaError,
        OSError,
        ExceptionGroup,
        *_imported(_OF_SPARK),
    )


def is_expected(error: BaseException) -> bool:
    """Return whether a failure is one that a sentence is enough for; of a group, each of it."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_expected, error.exceptions))
    if isinstance(error, (PipelineError, SparkStartError, KafkaError, OSError)):
        return True
    if not isinstance(error, _imported(_OF_SPARK)):
        return False
    return isinstance(error, _imported(_REFUSED_SETTING)) or _cause(whole_text(error)) is not None


def _imported(names: tuple[tuple[str, str], ...]) -> tuple[type[Exception], ...]:
    return tuple(
        getattr(sys.modules[module], name) for module, name in names if module in sys.modules
    )


def explain(error: BaseException, log_path: str | None = None) -> str:
    """Return one plain sentence about a failure.

    Args:
        log_path: where Spark's own output is, if there is any.
    """
    error = unwrapped(error)
    if isinstance(error, PipelineError):
        return str(error)
    text = whole_text(error)
    if _NO_SPACE.search(text):
        return _DISK_IS_FULL
    if isinstance(error, KafkaError):
        return first_line(str(error))
    where = f" (Spark's own words are in {log_path})" if log_path else ""
    return f"{_cause(text) or first_line(_root_message(text)) or type(error).__name__}{where}"


def _cause(text: str) -> str | None:
    """Return the sentence for the cause that a failure's text points to."""
    if _NO_SPACE.search(text):
        return _DISK_IS_FULL
    return next((sentence for pattern, sentence in _CAUSES if re.search(pattern, text)), None)


def unwrapped(error: BaseException) -> BaseException:
    """Return what a group of one exception is about."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def is_of_brokers(error: BaseException) -> bool:
    """Return whether brokers that are away for a while explain a failure, and nothing else does."""
    error = unwrapped(error)
    text = whole_text(error)
    if isinstance(error, PipelineError) or _NO_SPACE.search(text):
        return False
    earlier = any(re.search(pattern, text) for pattern, _ in _CAUSES[:-1])
    return not earlier and bool(_OF_BROKERS.search(text))


def whole_text(error: BaseException) -> str:
    """Return the texts of an error and of everything that caused it, without frames of stacks."""
    texts: list[str] = []
    current: BaseException | None = error
    while current is not None and len(texts) < 20:
        texts.append(f"{type(current).__name__}: {_FRAMES.sub('', str(current))}")
        if isinstance(current, BaseExceptionGroup):
            texts += [whole_text(inner) for inner in current.exceptions]
        # Spark's exceptions keep what Java says of their cause in a place of their own.
        current = getattr(current, "_cause", None) or current.__cause__ or current.__context__
    return "\n".join(texts)


def first_line(text: str) -> str:
    """Return the first line that says something, cut to what a terminal shows."""
    lines = (line.strip() for line in text.splitlines())
    line = next((line for line in lines if line), "")
    return line if len(line) <= 300 else line[:297] + "..."


def _root_message(text: str) -> str:
    """Return the last cause that Java names, else its last exception, else the text itself."""
    reported = re.findall(r"(?m)^\s*Caused by: (?:[\w.$]+: )?(.+)$", text)
    reported = reported or re.findall(r"(?m)^(?:\w+\.)+\w+(?:Exception|Error): (.+)$", text)
    return reported[-1] if reported else re.sub(r"^\w+: ", "", text)
