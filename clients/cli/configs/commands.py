"""`kraftrio config`: get, set, unset, on every kind of resource.

A resource is KIND/NAME: topic/orders, broker/1, broker/ (the defaults of all brokers), logger/1,
group/readers, client-metrics/all-clients.

Called by: the root of the command line.
"""

from __future__ import annotations

import click

from kraftrio.clients.admin.admin import Admin
from kraftrio.clients.admin.types import (
    AlterConfigOp,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    OpType,
)
from kraftrio.clients.arguments.nearest import did_you_mean, nearest
from kraftrio.clients.cli.failures import CommandError
from kraftrio.clients.cli.lazy_group import LazyGroup
from kraftrio.clients.cli.output import Column, Row
from kraftrio.clients.cli.partitions import describe_topics
from kraftrio.clients.cli.session import Session, cluster_command, pairs

KINDS = {
    "topic": ConfigResourceType.TOPIC,
    "broker": ConfigResourceType.BROKER,
    "logger": ConfigResourceType.BROKER_LOGGER,
    "group": ConfigResourceType.GROUP,
    "client-metrics": ConfigResourceType.CLIENT_METRICS,
}
_COLUMNS = (Column("name"), Column("value"), Column("source"))


@click.group("config", cls=LazyGroup)
def config() -> None:
    """Settings of topics, brokers, loggers, groups and client metrics."""


@config.command("get", epilog="Example: kraftrio config get topic/orders retention.ms")
@click.argument("resource", metavar="KIND/NAME")
@click.argument("names", metavar="[SETTING]...", nargs=-1)
@click.option("--changed", is_flag=True, help="Only what is not the default.")
@click.option("--docs", is_flag=True, help="Also say what each setting is for.")
@cluster_command
async def get(
    session: Session, resource: str, names: tuple[str, ...], changed: bool, docs: bool
) -> None:
    """Show settings with where their values come from."""
    wanted = _resource(resource)
    async with session.admin() as admin:
        await _check_topic(admin, wanted)
        found = (await admin.describe_configs([wanted], include_documentation=docs))[wanted]
    for name in names:
        if name not in found:
            raise CommandError(f"{resource} has no setting {name!r}{did_you_mean(name, found)}")
    rows = [
        _row(resource, entry)
        for name, entry in sorted(found.items())
        if (not names or name in names) and not (changed and entry.is_default)
    ]
    columns = (*_COLUMNS, Column("documentation")) if docs else _COLUMNS
    session.output.rows(columns, rows)


@config.command("set", epilog="Example: kraftrio config set broker/1 log.cleaner.threads=2")
@click.argument("resource", metavar="KIND/NAME")
@click.argument("settings", metavar="SETTING=VALUE...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Have the cluster check it, and change nothing.")
@cluster_command
async def set_(session: Session, resource: str, settings: tuple[str, ...], dry_run: bool) -> None:
    """Change settings; the others stay as they are."""
    operations = [
        AlterConfigOp(name, value) for name, value in pairs(settings, "a setting").items()
    ]
    await _alter(session, resource, operations, dry_run)


@config.command("unset", epilog="Example: kraftrio config unset topic/orders retention.ms")
@click.argument("resource", metavar="KIND/NAME")
@click.argument("names", metavar="SETTING...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Have the cluster check it, and change nothing.")
@cluster_command
async def unset(session: Session, resource: str, names: tuple[str, ...], dry_run: bool) -> None:
    """Remove settings, so that their defaults apply."""
    await _alter(
        session, resource, [AlterConfigOp(name, None, OpType.DELETE) for name in names], dry_run
    )


async def _alter(
    session: Session, resource: str, operations: list[AlterConfigOp], dry_run: bool
) -> None:
    wanted = _resource(resource)
    async with session.admin() as admin:
        await _check_topic(admin, wanted)
        await _check_names(admin, wanted, resource, [each.name for each in operations])
        await admin.incremental_alter_configs({wanted: operations}, validate_only=dry_run)
    verb = "would be changed" if dry_run else "changed"
    names = [each.name for each in operations]
    session.output.done(
        f"{resource}: {', '.join(names)} {verb}",
        {"resource": resource, "changed": [] if dry_run else names},
    )


def _resource(text: str) -> ConfigResource:
    kind, slash, name = text.partition("/")
    if kind not in KINDS or not slash:
        meant = nearest(kind, sorted(KINDS)) or "topic"
        raise click.UsageError(
            f"{text!r} is not a resource such as {meant}/NAME: KIND is one of {', '.join(KINDS)}"
        )
    if not name and kind != "broker":
        raise click.UsageError(f"{text!r} names no {kind}")
    return ConfigResource(KINDS[kind], name)


async def _check_topic(admin: Admin, resource: ConfigResource) -> None:
    if resource.type == ConfigResourceType.TOPIC:
        await describe_topics(admin, [resource.name])


async def _check_names(admin: Admin, resource: ConfigResource, text: str, names: list[str]) -> None:
    """Refuse an unknown setting, and name the nearest one, which the cluster would not do."""
    if resource.type not in (ConfigResourceType.TOPIC, ConfigResourceType.GROUP):
        return
    known = (await admin.describe_configs([resource]))[resource]
    for name in names:
        if known and name not in known:
            raise CommandError(f"{text} has no setting {name!r}{did_you_mean(name, known)}")


def _row(resource: str, entry: ConfigEntry) -> Row:
    row = {
        "resource": resource,
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name.removesuffix("_CONFIG").lower().replace("_", " "),
        "sensitive": entry.is_sensitive,
        "read_only": entry.is_read_only,
    }
    if entry.documentation is not None:
        row["documentation"] = entry.documentation
    return row
