"""The steps of scripts/check, which calls this in the checkout's .venv.

In order: set-up of what the tests use; types, and beside them format, lint, imports, tidy, and all
tests collected, which compiles them; then the folders of tests: unit, simulation, integration,
conformance, the documentation's pages, Spark's data sources, the pipeline. All steps run also after
a failure, so that one run shows everything. Unit tests and simulations run on every core, as do
those with Spark, which starts slowly; tests that mostly wait for other processes run several at a
time on each; those that measure time or memory (marked `measures`) run alone. If a few tests of a
step fail, those are run once more, one at a time: on a busy machine a process may start or answer
too late. What passes then is printed as unstable, and has to be mended. At the end come the time of
each step, the slowest tests of all, the unstable ones, the reasons of skipped tests, and one plain
line of counts over all of pytest's runs.

A step of pytest is a folder of tests; one that holds none is left out. What the tests need from
outside (Apache's jars, other people's clients) is fetched before them, each into a cache, and a
failure there only means that the tests which need it are skipped with the reason, or fail when
TEST_REQUIRE_TOOLS is set.
"""

from __future__ import annotations

import argparse
import heapq
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONFORMANCE = ROOT / "tests" / "conformance"
TIDY = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/test_*.py"))
QUICK_TESTS = ("unit", "sim")
LONG_TESTS = ("integration", "conformance", "docs", "spark", "pipeline")  # processes of their own
ALL_AT_ONCE = (*QUICK_TESTS, "docs", "pipeline")  # no test there is left for a run alone
# Compiles the tests once: each worker of a step would do it, all at the same time. What cannot be
# imported is said there.
COLLECT = ["pytest", "--collect-only", "-p", "no:terminal"]
COVERAGE = ["--cov", "--cov-report=term:skip-covered"]
CORES = os.cpu_count() or 1
AT_ONCE = {
    "unit": CORES,
    "sim": CORES,
    "integration": 2 * CORES,
    "conformance": 3 * CORES,
    "docs": 2 * CORES,
    "spark": CORES,
    "pipeline": CORES + 1,  # a fourth of its time is waiting
}
SLOWEST = 10
MOST_AGAIN = 5  # failed tests of a step: more of them are no accident
PRINTING = threading.Lock()  # the output of one step after the other
LINTED = ["base", "wire", "net", "kraft_meta", "broker", "clients", "kraftrio", "scripts", "tests"]


@dataclass
class StepResult:
    """What one step came to."""

    name: str
    seconds: float
    ok: bool
    counts: Counter[str] = field(default_factory=Counter)
    skips: Counter[str] = field(default_factory=Counter)
    tests: list[tuple[float, str]] = field(default_factory=list)  # seconds, name
    failed: set[str] = field(default_factory=set)  # names
    unstable: set[str] = field(default_factory=set)  # names of those that passed the second time


def run(name: str, command: list[str], *, at_once: bool = True) -> StepResult:
    """Run a command as a step, with its output as it comes or, if not `at_once`, at its end."""
    begin = time.monotonic()
    if at_once:
        banner(name)
        done = subprocess.run(command, cwd=ROOT, check=False, stdin=subprocess.DEVNULL)
    else:
        done = subprocess.run(
            command,
            cwd=ROOT,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    seconds = time.monotonic() - begin
    if not at_once:
        with PRINTING:
            banner(name)
            sys.stdout.buffer.write(done.stdout)
            sys.stdout.flush()
    return StepResult(name, seconds, done.returncode == 0)


def run_side_by_side(steps: Iterable[Callable[[], StepResult]]) -> list[StepResult]:
    """Take steps of one process each, as many at a time as there are cores."""
    with ThreadPoolExecutor(CORES) as pool:
        return list(pool.map(lambda step: step(), steps))


def banner(name: str) -> None:
    """Print the head of a step."""
    print(f"\n=== {name}", flush=True)


def run_pytest(
    name: str, paths: list[str], options: list[str], *, at_once: bool = True
) -> StepResult:
    """Run pytest on some folders and count its outcomes."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}"]
        command += [*options, *paths]
        outcome = run(name, command, at_once=at_once)
        if report.exists():
            count_tests(report, outcome)
        else:
            outcome.counts["failed"] += 1  # it did not come as far as running tests
    # Pytest's 5 is "no tests": right under -k, where most steps have nothing to run.
    if not outcome.counts.total() and "-k" in options:
        outcome.ok = True
    if not outcome.ok and not outcome.counts["failed"]:
        outcome.counts["failed"] += 1  # its end did: something was left behind
    return outcome


def count_tests(report: Path, outcome: StepResult) -> None:
    """Add a JUnit report's outcomes to the step's counts."""
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname', '')}::{case.get('name', '')}"
        outcome.tests.append((float(case.get("time", 0)), name))
        kinds = {child.tag for child in case}
        skipped = case.find("skipped")
        if kinds & {"failure", "error"}:
            outcome.counts["failed"] += 1
            outcome.failed.add(name)
        elif skipped is not None:
            outcome.counts["skipped"] += 1
            outcome.skips[skipped.get("message", "no reason given")] += 1
        else:
            outcome.counts["passed"] += 1


def set_up_tools() -> list[StepResult]:
    """Fetch what the conformance tests use; what can't be had is reported and left to them."""
    outcomes = []
    script = str(ROOT / "scripts" / "apache_kafka.py")
    once = [sys.executable, script, "run", "kafka-topics", "--version"]  # makes the class archive
    outcomes.append(run("set up Apache Kafka's tools", once))
    if (CONFORMANCE / "clients" / "install.py").exists():
        clients = "tests.conformance.clients"
        outcomes.append(run("set up other clients", [sys.executable, "-m", f"{clients}.install"]))
        outcomes.append(
            run("set up Spark's classes", [sys.executable, "-m", f"{clients}.spark_java"])
        )
    # Never a failure of the check by itself: the tests that need it say so.
    for outcome in outcomes:
        if not outcome.ok:
            print(f"{outcome.name}: not to be had, the tests that need it will say so")
            outcome.ok = True
    return outcomes


def all_steps(fast: bool, coverage: bool, options: list[str]) -> list[StepResult]:
    """Run every step and return what each came to."""
    linted = [name for name in LINTED if (ROOT / name).exists()]
    python = [sys.executable, "-m"]
    names = [
        name
        for name in (QUICK_TESTS if fast else (*QUICK_TESTS, *LONG_TESTS))
        if any((ROOT / "tests" / name).rglob("test_*.py"))
    ]
    folders = [f"tests/{name}" for name in names]
    outcomes = [] if fast else set_up_tools()
    lint_imports = str(Path(sys.executable).parent / "lint-imports")
    later = partial(run, at_once=False)
    outcomes += run_side_by_side(
        [
            partial(later, "types", [*python, "mypy"]),  # takes longest: others run beside it
            partial(later, "format", [*python, "ruff", "format", "--check", *linted]),
            partial(later, "lint", [*python, "ruff", "check", *linted]),
            partial(later, "imports", [lint_imports, "--no-logo"]),
            partial(run_pytest, "tidy", TIDY, options, at_once=False),
            partial(later, "collect", [*python, *COLLECT, *folders]),
        ]
    )
    for name in names:
        measured = COVERAGE if coverage and name == "unit" else []
        outcomes += run_folder(name, [*options, *measured])
    return outcomes


def run_folder(name: str, options: list[str]) -> list[StepResult]:
    """Run a folder of tests: several at once if they can, and then what measures."""
    at_once = ["-n", str(AT_ONCE[name]), "--dist", "worksteal"]
    steps = {name: [*at_once, "-m", "not measures"], f"{name}, alone": ["-m", "measures"]}
    if name in ALL_AT_ONCE:
        steps = {name: at_once}
    outcomes = []
    for step, chosen in steps.items():
        outcome = run_pytest(step, [f"tests/{name}"], [*options, *chosen])
        # A simulation is the same each time.
        if name != "sim" and 0 < len(outcome.failed) <= MOST_AGAIN:
            run_failed_again(outcome, [f"tests/{name}"], [*options, *chosen, "-n", "0"])
        outcomes.append(outcome)
    return outcomes


def run_failed_again(outcome: StepResult, paths: list[str], options: list[str]) -> None:
    """Run the failed tests of a step once more, and correct the step if they pass."""
    last_failed = ["--last-failed", "--last-failed-no-failures=none"]
    again = run_pytest(f"{outcome.name}, again", paths, [*options, *last_failed])
    outcome.seconds += again.seconds
    if again.counts["passed"]:
        outcome.ok = again.ok
        outcome.unstable = outcome.failed - again.failed
        outcome.failed = again.failed
        outcome.counts["passed"] += len(outcome.unstable)
        outcome.counts["failed"] = again.counts["failed"]


def summarize(outcomes: list[StepResult]) -> bool:
    """Print times, skips and counts, and return whether all is well."""
    banner("summary")
    counts: Counter[str] = Counter()
    skips: Counter[str] = Counter()
    for outcome in outcomes:
        result = "ok" if outcome.ok else "FAILED"
        tests = ", ".join(f"{number} {kind}" for kind, number in outcome.counts.items())
        print(f"{outcome.name:30} {outcome.seconds:7.1f} s  {result:6}  {tests}")
        counts += outcome.counts
        skips += outcome.skips
    print("the slowest tests:")
    for seconds, name in heapq.nlargest(SLOWEST, chain.from_iterable(o.tests for o in outcomes)):
        print(f"{seconds:9.1f} s  {name}")
    for name in sorted(chain.from_iterable(outcome.unstable for outcome in outcomes)):
        print(f"unstable, passed when run again: {name}")
    for reason, number in skips.most_common():
        print(f"skipped {number}: {reason}")
    broken = [outcome.name for outcome in outcomes if not outcome.ok]
    if broken:
        print(f"FAILED: {', '.join(broken)}")
    print(
        f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped",
        flush=True,
    )
    return not broken and not counts["failed"] and counts["passed"] > 0


def main() -> int:
    """Read the options and run the check."""
    # A shell that starts a check in the background has it ignore this signal, and with it the
    # programs that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog="scripts/check", description="All checks of the project.")
    parser.add_argument(
        "--fast", action="store_true", help="without clients and brokers in processes of their own"
    )
    parser.add_argument("-k", metavar="EXPRESSION", help="only the tests that fit, as in pytest")
    parser.add_argument(
        "--coverage", action="store_true", help="say how much of each module the unit tests run"
    )
    parser.add_argument("-x", action="store_true", help="end each step at its first failed test")
    chosen = parser.parse_args()
    options = (["-k", chosen.k] if chosen.k else []) + (["-x"] if chosen.x else [])
    os.chdir(ROOT)
    return 0 if summarize(all_steps(chosen.fast, chosen.coverage, options)) else 1


if __name__ == "__main__":
    sys.exit(main())
