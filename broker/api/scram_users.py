"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554).

Behaviour (Kafka's)
- Credentials are described from the metadata that this node knows: mechanisms and iterations, never
  a key or a salt. No users named means all of them; one named twice is DUPLICATE_RESOURCE, one
  without credentials RESOURCE_NOT_FOUND.
- What alters them is decided by the active controller. Each user is decided on alone, so a large
  request is sent in parts; a user that is named twice is named twice in its part.

Called by: the dispatchers of brokers and of controllers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

from kraftrio.broker.api.shared.decision_parts import TOO_LARGE, decide_each, is_excessive
from kraftrio.broker.ports import ControllerPort, MetadataPort
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.request_parts import PART_ENTRIES
from kraftrio.broker.server.slices.sliced_sets import SlicedSet, distinct, repeated
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.kraft_meta.metadata.image import MetadataImage
from kraftrio.kraft_meta.metadata.scram_image import ScramUser
from kraftrio.wire.codec.lazy_arrays import each
from kraftrio.wire.codec.slices import Slices
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.configs import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kraftrio.wire.protocol.api import ApiKey
from kraftrio.wire.sasl.scram_keys import ScramMechanism

_Alteration = ScramCredentialDeletion | ScramCredentialUpsertion

_TWICE: Final = "Cannot describe SCRAM credentials for the same user twice in a single request"
_UNKNOWN: Final = "Attempt to describe a user credential that does not exist"


class ScramUserHandlers:
    """Serves these APIs on one node.

    Args:
        controller: decides, or says that another node does.
    """

    def __init__(self, metadata: MetadataPort, controller: ControllerPort) -> None:
        self._metadata = metadata
        self._controller = controller

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: self.describe,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: self.alter,
        }

    def describe(
        self, request: DescribeUserScramCredentialsRequest, _context: RequestContext
    ) -> Slices[DescribeUserScramCredentialsResponse]:
        """Describe the users that are named, or all."""
        image = self._metadata.image
        users = request.users or []
        named: Iterable[str] = (user.name for user in users)
        if not users:
            named = sorted({user.name for user in image.scram_credentials})
        twice = yield from repeated(user.name for user in users)
        names = yield from distinct(named)
        return DescribeUserScramCredentialsResponse(
            error_message="",
            results=each(lambda name: _described(name, image, is_twice=name in twice), names),
        )

    def alter(
        self, request: AlterUserScramCredentialsRequest, context: RequestContext
    ) -> Work[Any]:
        """Let the controller decide, on a part after the other."""
        if (yield from is_excessive(request)):
            users = yield from distinct(one.name for one in _alterations(request))
            return AlterUserScramCredentialsResponse(results=each(_refuse_as_excessive, users))
        decide = partial(self._controller.submit, api_version=context.api_version)
        if len(request.deletions) + len(request.upsertions) <= PART_ENTRIES:
            return decide(request)
        twice = yield from repeated(one.name for one in _alterations(request))
        answers = yield from decide_each(decide, _parts(request, twice))
        return AlterUserScramCredentialsResponse(
            results=[one for answer in answers for one in answer.results]
        )


def _described(
    name: str, image: MetadataImage, *, is_twice: bool
) -> DescribeUserScramCredentialsResult:
    infos = []
    for mechanism in ScramMechanism:
        credential = image.scram_credentials.get(ScramUser(name, mechanism))
        if credential is not None:
            infos.append(CredentialInfo(mechanism=mechanism, iterations=credential.iterations))
    code, text = ErrorCode.NONE, ""
    if is_twice:
        code, text, infos = ErrorCode.DUPLICATE_RESOURCE, f"{_TWICE}: {name}", []
    elif not infos:
        code, text = ErrorCode.RESOURCE_NOT_FOUND, f"{_UNKNOWN}: {name}"
    return DescribeUserScramCredentialsResult(
        user=name, error_code=code, error_message=text, credential_infos=infos
    )


def _refuse_as_excessive(name: str) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(
        user=name, error_code=ErrorCode.POLICY_VIOLATION, error_message=TOO_LARGE
    )


def _alterations(request: AlterUserScramCredentialsRequest) -> Iterator[_Alteration]:
    yield from request.deletions
    yield from request.upsertions


def _parts(
    request: AlterUserScramCredentialsRequest, twice: SlicedSet[str]
) -> Iterator[AlterUserScramCredentialsRequest | None]:
    """Cut the alterations into parts; None is only a pause."""
    seen: SlicedSet[str] = SlicedSet()
    part = AlterUserScramCredentialsRequest()
    for alteration in _alterations(request):
        if seen.add(alteration.name):
            named = [alteration, alteration] if alteration.name in twice else [alteration]
            for one in named:
                if isinstance(one, ScramCredentialDeletion):
                    part.deletions.append(one)
                else:
                    part.upsertions.append(one)
        if len(part.deletions) + len(part.upsertions) >= PART_ENTRIES:
            yield part
            part = AlterUserScramCredentialsRequest()
        else:
            yield None
    if part.deletions or part.upsertions:
        yield part
