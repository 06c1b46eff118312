"""DescribeUserScramCredentials and AlterUserScramCredentials, as a node answers them."""

from __future__ import annotations

from typing import Any

from kraftrio.broker.api.scram_users import ScramUserHandlers
from kraftrio.wire.errors import ErrorCode
from kraftrio.wire.messages.configs import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResult,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from tests.support.sliced import finish, finish_counting, finish_timing
from tests.unit.broker.api.cluster_context import ClusterContext, context

MOST = 10_000


def upsert(user: str, mechanism: int = 1) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=4096, salt=b"s", salted_password=b"p"
    )


def alter(cluster: ClusterContext, *upserted: Any, deleted: Any = ()) -> Any:
    request = AlterUserScramCredentialsRequest(deletions=list(deleted), upsertions=list(upserted))
    answer = finish(handlers(cluster).alter(request, context(0)))
    return answer.value if hasattr(answer, "value") else answer


def handlers(cluster: ClusterContext) -> ScramUserHandlers:
    return ScramUserHandlers(cluster.metadata, cluster)


def describe(cluster: ClusterContext, *names: str) -> dict[str, Any]:
    users = [UserName(name=name) for name in names] or None
    request = DescribeUserScramCredentialsRequest(users=users)
    response = finish(handlers(cluster).describe(request, context(0)))
    return {
        one.user: (
            one.error_code,
            [(info.mechanism, info.iterations) for info in one.credential_infos],
        )
        for one in response.results
    }


def test_what_was_altered_is_described() -> None:
    cluster = ClusterContext()
    assert describe(cluster) == {}
    alter(cluster, upsert("bob"), upsert("alice", 2))
    alter(cluster, upsert("alice", 1))
    both = [(1, 4096), (2, 4096)]
    assert describe(cluster) == {"alice": (0, both), "bob": (0, [(1, 4096)])}
    assert describe(cluster, "bob", "carol", "alice", "alice") == {
        "bob": (0, [(1, 4096)]),
        "carol": (ErrorCode.RESOURCE_NOT_FOUND, []),
        "alice": (ErrorCode.DUPLICATE_RESOURCE, []),
    }


def test_many_users_are_altered_in_parts() -> None:
    """Each once; one that is named twice, far apart, is refused as in one step."""
    cluster = ClusterContext()
    alter(cluster, upsert("gone"))
    users = [f"user-{number:04}" for number in range(700)]
    response = alter(
        cluster,
        *(upsert(user) for user in [*users, users[0]]),
        deleted=[ScramCredentialDeletion(name="gone", mechanism=1)],
    )
    results: list[AlterUserScramCredentialsResult] = response.results
    refused = [one.user for one in results if one.error_code == ErrorCode.DUPLICATE_RESOURCE]
    assert refused == [users[0]]
    assert sorted(one.user for one in results) == sorted(["gone", *users])
    assert sorted(describe(cluster)) == users[1:]


def test_no_step_of_the_largest_request_takes_long() -> None:
    cluster = ClusterContext()
    request = AlterUserScramCredentialsRequest(
        upsertions=[upsert(f"user-{number}") for number in range(MOST)]
    )
    answer, longest_s = finish_timing(handlers(cluster).alter(request, context(0)))
    assert len(answer.results) == MOST
    assert longest_s < 0.02
    request.upsertions = [*request.upsertions, upsert("one more")]
    refused, pauses = finish_counting(handlers(cluster).alter(request, context(0)))
    assert {one.error_code for one in refused.results} == {ErrorCode.POLICY_VIOLATION}
    assert len(refused.results) == MOST + 1
    assert pauses >= MOST, "those who are refused are gone through one by one"
