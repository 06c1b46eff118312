"""Groups with their lag over time, one group with its members, and where a group is to go on.

A reset is shown before it is made, and what is made is what was shown: the offsets of the preview
are sent with the form.

Called by: `app`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from kraftrio.clients.admin.types import GroupListing
from kraftrio.clients.arguments.nearest import did_you_mean
from kraftrio.clients.cli.groups import reset as resets
from kraftrio.clients.cli.groups.known_offsets import known_offsets
from kraftrio.clients.cli.groups.lag import SHARE, committed_offsets, view_group
from kraftrio.clients.cli.times import parse_moment_ms
from kraftrio.clients.console.console import Console, PageError
from kraftrio.clients.console.guard import check_form
from kraftrio.clients.console.history.charts import SPARK_POINTS, make_chart
from kraftrio.clients.console.history.series import Series
from kraftrio.clients.console.pages.view import link, mark_begin, page, piece_of
from kraftrio.clients.errors import GroupNotEmptyError, UnknownMemberIdError
from kraftrio.wire.primitives import TopicPartition

FORMS: Final = {
    "earliest": "the earliest",
    "latest": "the latest",
    "moment": "a time",
    "offset": "an offset",
    "shift": "further on, or back, by",
}


async def groups(console: Console, request: Request) -> Response:
    """List the groups whose ids contain what was asked for."""
    seen = await console.sampler.latest()
    part = request.query_params.get("find", "").strip()
    chosen = [group for name, group in sorted(seen.groups.items()) if part.lower() in name.lower()]
    piece = piece_of(chosen, request)
    rows = [
        {
            "group": group,
            "chart": make_chart(
                _lags(console, group.listing.group_id).points(SPARK_POINTS), 96, 20
            ),
        }
        for group in piece.items
    ]
    return page(
        console,
        "groups.html",
        "Groups",
        area="groups",
        seen=seen,
        part=part,
        piece=piece,
        rows=rows,
    )


async def group(console: Console, request: Request) -> Response:
    """Show a group."""
    mark_begin(request)
    listing = await _listing(console, request.query_params.get("id", ""))
    view = await view_group(console.admin, listing)
    return page(
        console,
        "group.html",
        f"Group {listing.group_id}",
        area="groups",
        view=view,
        was_reset=request.query_params.get("reset") == "1",
        chart=make_chart(_lags(console, listing.group_id).points(), 640, 96),
    )


async def reset(console: Console, request: Request) -> Response:
    """Show what a reset would do."""
    mark_begin(request)
    fields = {
        name: request.query_params.get(name, "") for name in ("group", "to", "value", "topic")
    }
    listing = await _listing(console, fields["group"])
    kind = listing.type.lower()
    current = await committed_offsets(console.admin, listing.group_id, kind)
    names = sorted({item.topic for item in current})
    plan, complaint = None, ""
    try:
        if fields["to"]:
            plan = await _plan(console, fields, current)
    except ValueError as error:
        complaint = str(error)
    return page(
        console,
        "reset.html",
        f"Reset group {listing.group_id}",
        area="groups",
        status=400 if complaint else 200,
        is_live=False,
        listing=listing,
        fields=fields,
        forms=FORMS,
        topics=names,
        plan=plan,
        complaint=complaint,
    )


async def apply_reset(console: Console, request: Request) -> Response:
    """Commit the offsets of a preview."""
    fields = await check_form(console, request)
    mark_begin(request)
    listing = await _listing(console, fields.get("group", ""))
    try:
        offsets = resets.read_table(fields.get("offsets", "").splitlines())
    except ValueError as error:
        raise PageError(400, f"the offsets of the preview: {error}") from None
    if not offsets:
        raise PageError(400, "there are no offsets to be committed: look at the preview first")
    try:
        if listing.type.lower() == SHARE:
            await console.admin.share_groups.alter_offsets(listing.group_id, offsets)
        else:
            await console.admin.alter_group_offsets(listing.group_id, offsets)
    except (UnknownMemberIdError, GroupNotEmptyError):
        raise PageError(
            409,
            f"group {listing.group_id!r} has members, so nothing was changed: stop them first",
        ) from None
    return RedirectResponse(link("/group", id=listing.group_id, reset="1"), status_code=303)


async def _plan(
    console: Console,
    fields: Mapping[str, str],
    current: Mapping[TopicPartition, int | None],
) -> resets.Plan:
    form, at_ms = _form(fields["to"], fields["value"].strip(), console.settings.now_ms())
    if fields["topic"]:
        topic = await console.topic(fields["topic"])
        items = [TopicPartition(topic.name, number) for number in sorted(topic.partitions)]
    else:
        items = sorted(current)
    return resets.plan_reset(form, await known_offsets(console.admin, items, current, at_ms))


def _form(to: str, value: str, now_ms: int) -> tuple[resets.Form, int | None]:
    """Return how to reset, and the moment whose offsets are wanted for it.

    Raises:
        ValueError: one of the fields is wrong; says what is wanted.
    """
    match to:
        case "earliest":
            return resets.to_earliest, None
        case "latest":
            return resets.to_latest, None
        case "moment":
            return resets.to_moment, parse_moment_ms(value, now_ms)
        case "offset":
            return resets.to_offset(_whole(value, "an offset, such as 1200")), None
        case "shift":
            return resets.shift_by(_whole(value, "how many records, such as 100 or -100")), None
    raise ValueError(f"a reset goes to one of {', '.join(FORMS)}, not {to!r}")


def _whole(text: str, what: str) -> int:
    digits = text.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
        raise ValueError(f"the field beside must say {what}, not {text!r}")
    return int(text)


def _lags(console: Console, group_id: str) -> Series:
    return console.sampler.lags.get(group_id, Series())


async def _listing(console: Console, group_id: str) -> GroupListing:
    known: dict[str, Any] = {each.group_id: each for each in await console.admin.list_groups()}
    if group_id not in known:
        raise PageError(404, f"there is no group {group_id!r}{did_you_mean(group_id, known)}")
    found: GroupListing = known[group_id]
    return found
