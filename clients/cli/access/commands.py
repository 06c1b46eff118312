"""`kraftrio acl`, `kraftrio user` and `kraftrio quota`.

Called by: the root of the command line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

import click

from kraftrio.clients.admin.security.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from kraftrio.clients.admin.security.client_quotas import QuotaEntity, QuotaFilter
from kraftrio.clients.admin.security.scram_users import (
    ScramDeletion,
    ScramMechanism,
    ScramPassword,
)
from kraftrio.clients.arguments.nearest import did_you_mean
from kraftrio.clients.cli.failures import CommandError
from kraftrio.clients.cli.lazy_group import LazyGroup
from kraftrio.clients.cli.output import Column, Row, number
from kraftrio.clients.cli.session import Session, cluster_command, confirm, pairs, report

E = TypeVar("E", bound=Enum)

_ACLS = (
    Column("principal"),
    Column("host"),
    Column("permission"),
    Column("operation"),
    Column("resource"),
    Column("pattern"),
)
_USERS = (Column("user"), Column("mechanism"), number("iterations"))
_QUOTAS = (
    Column("user"),
    Column("client_id", "client"),
    Column("ip"),
    Column("quota"),
    number("value"),
)
_MECHANISMS = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
_MECHANISM = click.option(
    "--mechanism",
    type=click.Choice(list(_MECHANISMS)),
    default="SCRAM-SHA-512",
    help="Of the password (default SCRAM-SHA-512).",
)


@click.group("acl", cls=LazyGroup)
def acl() -> None:
    """Who may do what: list, allow, deny, remove."""


@acl.command("list", epilog="Example: kraftrio acl list --principal User:alice")
@click.option("--principal", metavar="TYPE:NAME", help="Only of this principal.")
@click.option("--on", "resource", metavar="KIND/NAME", help="Only on this resource.")
@cluster_command
async def list_acls(session: Session, principal: str | None, resource: str | None) -> None:
    """List the entries, all or those that match."""
    wanted = _filter(principal, resource)
    async with session.admin() as admin:
        found = await admin.acls.describe(wanted)
    session.output.rows(_ACLS, [_acl_row(each) for each in found])


def _change_command(name: str, permission: AclPermissionType, example: str) -> None:
    """Make `allow` and `deny`, which differ in one word."""

    @acl.command(name, help=f"{name.title()} a principal operations on a resource.", epilog=example)
    @click.argument("principal", metavar="TYPE:NAME")
    @click.argument("operations", metavar="OPERATION...", nargs=-1, required=True)
    @click.option(
        "--on",
        "resource",
        metavar="KIND/NAME",
        required=True,
        help="Such as topic/orders, group/readers, transactional_id/a, cluster.",
    )
    @click.option("--prefixed", is_flag=True, help="On all resources whose names begin with NAME.")
    @click.option("--host", default="*", help="Only from this address (default: any).")
    @cluster_command
    async def change(
        session: Session,
        principal: str,
        operations: tuple[str, ...],
        resource: str,
        prefixed: bool,
        host: str,
    ) -> None:
        kind, resource_name = _resource(resource)
        pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
        wanted = [
            Acl(
                kind,
                resource_name,
                principal,
                _member(AclOperation, each, "operation"),
                permission,
                host,
                pattern,
            )
            for each in operations
        ]
        async with session.admin() as admin:
            results = await admin.acls.create(wanted, raise_errors=False)

        def done(made: Acl, nothing: None) -> None:
            verb = "may" if permission is AclPermissionType.ALLOW else "may not"
            what = made.operation.name.lower()
            session.output.done(f"{principal} {verb} {what} on {resource}", _acl_row(made))

        report(results, done, lambda made: made.operation.name.lower())


_change_command(
    "allow",
    AclPermissionType.ALLOW,
    "Example: kraftrio acl allow User:alice read write --on topic/orders",
)
_change_command(
    "deny", AclPermissionType.DENY, "Example: kraftrio acl deny User:bob all --on topic/orders"
)


@acl.command("remove", epilog="Example: kraftrio acl remove --principal User:alice --yes")
@click.option("--principal", metavar="TYPE:NAME", help="Only of this principal.")
@click.option("--on", "resource", metavar="KIND/NAME", help="Only on this resource.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_command
async def remove(session: Session, principal: str | None, resource: str | None, yes: bool) -> None:
    """Remove the entries of a principal, on a resource, or both."""
    if principal is None and resource is None:
        raise click.UsageError("give --principal or --on: without either all would be removed")
    wanted = _filter(principal, resource)
    async with session.admin() as admin:
        found = await admin.acls.describe(wanted)
        confirm(f"remove {len(found)} entries?", yes)
        removed = (await admin.acls.delete([wanted]))[wanted]
    for each in removed:
        row = _acl_row(each)
        session.output.done(f"removed: {' '.join(str(value) for value in row.values())}", row)


def _filter(principal: str | None, resource: str | None) -> AclFilter:
    if resource is None:
        return AclFilter(principal=principal)
    kind, name = _resource(resource)
    return AclFilter(kind, name, principal, pattern_type=PatternType.ANY)


def _resource(text: str) -> tuple[ResourceType, str]:
    kind, _, name = text.partition("/")
    found = _member(ResourceType, kind.replace("-", "_"), "kind of resource")
    if found is ResourceType.CLUSTER:
        return found, name or "kafka-cluster"
    if not name:
        raise click.UsageError(f"{text!r} is not a resource such as topic/orders")
    return found, name


def _member(kind: type[E], text: str, what: str) -> E:
    names = [name.lower() for name in kind.__members__ if name not in ("UNKNOWN", "ANY", "MATCH")]
    if text.lower() not in names:
        hint = did_you_mean(text, names) or f"; expected one of {', '.join(names)}"
        raise click.UsageError(f"there is no {what} {text!r}{hint}")
    return kind[text.upper()]


def _acl_row(entry: Acl) -> Row:
    return {
        "principal": entry.principal,
        "host": entry.host,
        "permission": entry.permission.name.lower(),
        "operation": entry.operation.name.lower(),
        "resource": f"{entry.resource_type.name.lower()}/{entry.resource_name}",
        "pattern": entry.pattern_type.name.lower(),
    }


@click.group("user", cls=LazyGroup)
def user() -> None:
    """Users who log in with SCRAM: list, set a password, remove."""


@user.command("list", epilog="Example: kraftrio user list")
@cluster_command
async def list_users(session: Session) -> None:
    """List the users and for which mechanisms they have passwords."""
    async with session.admin() as admin:
        found = await admin.scram_users.describe()
    names = {mechanism: name for name, mechanism in _MECHANISMS.items()}
    rows: list[Row] = [
        {"user": name, "mechanism": names[each.mechanism], "iterations": each.iterations}
        for name, credentials in sorted(found.items())
        for each in credentials
    ]
    session.output.rows(_USERS, rows)


@user.command("set", epilog="Example: kraftrio user set alice < password")
@click.argument("name", metavar="USER")
@_MECHANISM
@cluster_command
async def set_password(session: Session, name: str, mechanism: str) -> None:
    """Set a user's password, which is prompted for, or read from standard input."""
    if sys.stdin.isatty():
        password = click.prompt("password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise CommandError("the password is empty; nothing was changed")
    change = ScramPassword(name, password, _MECHANISMS[mechanism])
    async with session.admin() as admin:
        await admin.scram_users.alter([change])
    row = {"user": name, "mechanism": mechanism}
    session.output.done(f"user {name} has a new password for {mechanism}", row)


@user.command("remove", epilog="Example: kraftrio user remove alice")
@click.argument("name", metavar="USER")
@_MECHANISM
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_command
async def remove_user(session: Session, name: str, mechanism: str, yes: bool) -> None:
    """Remove a user's password."""
    async with session.admin() as admin:
        known = await admin.scram_users.describe()
        if name not in known:
            raise CommandError(f"there is no user {name!r}{did_you_mean(name, known)}")
        confirm(f"remove the password of {name} for {mechanism}?", yes)
        await admin.scram_users.alter([ScramDeletion(name, _MECHANISMS[mechanism])])
    session.output.done(
        f"user {name} has no password for {mechanism} any more",
        {"user": name, "mechanism": mechanism},
    )


@click.group("quota", cls=LazyGroup)
def quota() -> None:
    """How much clients may use: list, set, unset."""


_ENTITY = (
    click.option("--user", metavar="NAME", help='Of this user; "" is the default of all.'),
    click.option("--client-id", metavar="NAME", help='With this client id; "" is the default.'),
    click.option("--ip", metavar="ADDRESS", help='From this address; "" is the default.'),
)
_C = TypeVar("_C", bound=Callable[..., object])


def _entity_options(command: _C) -> _C:
    for option in reversed(_ENTITY):
        command = option(command)
    return command


@quota.command("list", epilog="Example: kraftrio quota list --user alice")
@_entity_options
@cluster_command
async def list_quotas(
    session: Session, user: str | None, client_id: str | None, ip: str | None
) -> None:
    """List quotas, all or those that match."""
    async with session.admin() as admin:
        found = await admin.quotas.describe(QuotaFilter(user, client_id, ip))
    rows: list[Row] = [
        {
            "user": _entity_name(entity.user),
            "client_id": _entity_name(entity.client_id),
            "ip": _entity_name(entity.ip),
            "quota": name,
            "value": value,
        }
        for entity, values in found.items()
        for name, value in sorted(values.items())
    ]
    session.output.rows(_QUOTAS, rows)


@quota.command("set", epilog="Example: kraftrio quota set --user alice producer_byte_rate=1000000")
@click.argument("quotas", metavar="NAME=VALUE...", nargs=-1, required=True)
@_entity_options
@cluster_command
async def set_quotas(
    session: Session,
    quotas: tuple[str, ...],
    user: str | None,
    client_id: str | None,
    ip: str | None,
) -> None:
    """Set quotas, such as producer_byte_rate, consumer_byte_rate, request_percentage."""
    values: dict[str, float | None] = {}
    for name, text in pairs(quotas, "a quota").items():
        try:
            values[name] = float(text)
        except ValueError:
            raise click.UsageError(f"{name} must be a number, not {text!r}") from None
    await _alter_quotas(session, QuotaEntity(user, client_id, ip), values)


@quota.command("unset", epilog="Example: kraftrio quota unset --user alice producer_byte_rate")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_entity_options
@cluster_command
async def unset_quotas(
    session: Session,
    names: tuple[str, ...],
    user: str | None,
    client_id: str | None,
    ip: str | None,
) -> None:
    """Remove quotas."""
    await _alter_quotas(session, QuotaEntity(user, client_id, ip), dict.fromkeys(names))


async def _alter_quotas(
    session: Session, entity: QuotaEntity, values: dict[str, float | None]
) -> None:
    if not entity.parts:
        raise click.UsageError("say whose quota: --user, --client-id, --ip")
    async with session.admin() as admin:
        await admin.quotas.alter({entity: values})
    whose = ", ".join(f"{kind} {name or '<default>'}" for kind, name in entity.parts.items())
    session.output.done(
        f"{', '.join(values)} of {whose} changed", {**entity.parts, "changed": sorted(values)}
    )


def _entity_name(name: str | None) -> str | None:
    return "<default>" if name == "" else name
