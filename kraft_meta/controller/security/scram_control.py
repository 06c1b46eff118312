"""AlterUserScramCredentials: which credentials come and go with a request.

Behaviour: each user succeeds or fails alone. One that is named twice is refused and left as it was.
The request brings salted passwords; what is kept are the keys made of them.

Called by: controller.py. Kafka's counterpart: ScramControlManager.
"""

from __future__ import annotations

from collections.abc import Iterable

from kraftrio.kraft_meta.controller.control import ControllerResult, DecisionContext
from kraftrio.kraft_meta.metadata.records import MetadataRecord
from kraftrio.kraft_meta.metadata.scram_image import ScramUser, credential_record
from kraftrio.kraft_meta.metadata.security_records import RemoveUserScramCredentialRecord
from kraftrio.wire.errors import ErrorCode, KafkaError
from kraftrio.wire.messages.configs import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kraftrio.wire.sasl.scram_keys import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramMechanism,
    credential_of,
)

_Alteration = ScramCredentialDeletion | ScramCredentialUpsertion


def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: DecisionContext
) -> ControllerResult:
    """Delete and upsert credentials of users."""
    alterations: Iterable[_Alteration] = (*request.deletions, *request.upsertions)
    decided: dict[str, MetadataRecord | KafkaError] = {}
    for alteration in alterations:
        user = alteration.name
        if isinstance(decided.get(user), KafkaError):
            continue  # the first refusal stands
        try:
            if user in decided:
                raise KafkaError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            decided[user] = _record(alteration, context)
        except KafkaError as error:
            decided[user] = error
    results = [
        AlterUserScramCredentialsResult(
            user=user,
            error_code=one.code if isinstance(one, KafkaError) else ErrorCode.NONE,
            error_message=one.message if isinstance(one, KafkaError) else None,
        )
        for user, one in decided.items()
    ]
    return ControllerResult(
        [one for one in decided.values() if not isinstance(one, KafkaError)],
        AlterUserScramCredentialsResponse(results=results),
    )


def _record(alteration: _Alteration, context: DecisionContext) -> MetadataRecord:
    if not alteration.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = ScramMechanism.of_number(alteration.mechanism)
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    user = ScramUser(alteration.name, mechanism)
    if isinstance(alteration, ScramCredentialDeletion):
        if user not in context.image.scram_credentials:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        return RemoveUserScramCredentialRecord(user.name, user.mechanism)
    iterations = alteration.iterations
    if iterations < MIN_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if iterations > MAX_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    salt, salted = bytes(alteration.salt), bytes(alteration.salted_password)
    if not salted:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salted password must not be empty")
    return credential_record(user, credential_of(mechanism, salted, salt, iterations))
