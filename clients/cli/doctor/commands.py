"""`kraftrio doctor`. Called by: the root of the command line."""

from __future__ import annotations

import click

from kraftrio.clients.cli.doctor.examination import examine
from kraftrio.clients.cli.doctor.machine import examine_machine
from kraftrio.clients.cli.doctor.symptoms import Status, StepFinding
from kraftrio.clients.cli.failures import CommandError
from kraftrio.clients.cli.output import Output, printable
from kraftrio.clients.cli.session import Session, cluster_command


@click.command("doctor", epilog="Example: kraftrio doctor --bootstrap-server broker:9092")
@click.option("--data", metavar="DIR", help="A directory of data, to see how full its disk is.")
@cluster_command
async def doctor(session: Session, data: str | None) -> None:
    """Find out why this machine cannot use that cluster, step by step as a client does it.

    The exit status is 1 if something does not work.
    """
    problems = 0
    async for finding in examine(session):
        problems += finding.status is Status.PROBLEM
        _show(session.output, finding)
    for finding in examine_machine(data):
        problems += finding.status is Status.PROBLEM
        _show(session.output, finding)
    if problems:
        raise CommandError(f"{problems} problem{'s' if problems > 1 else ''} found")


def _show(output: Output, finding: StepFinding) -> None:
    if output.as_json:
        output.object(finding.row)
    else:
        status = finding.status.value
        line = f"{status:<8} {finding.check:<11} {finding.subject}: {finding.found}"
        output.line(printable(line))
        if finding.remedy:
            output.line(printable(f"{'':8} -> {finding.remedy}"))
    output.flush()
