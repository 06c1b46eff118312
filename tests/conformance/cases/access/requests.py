"""A request of every API that not everybody may send, and what it takes to send it.

Each is about things of its own: a topic, a group and a transactional id that its sender has some
rights on, others that exist and that it has none on (`hidden...`), and some that do not exist.
"""

from __future__ import annotations

from kraftrio.wire.protocol.api import APIS, ApiKey
from tests.conformance.cases.access.administration import ADMIN, METADATA, SECURITY
from tests.conformance.cases.access.data import DATA
from tests.conformance.cases.access.groups import GROUPS
from tests.conformance.cases.access.nodes import NODES, SHARE_STATE, VOTERS
from tests.conformance.cases.access.things import Case
from tests.conformance.cases.access.transactions import TRANSACTIONS

CASES: dict[str, Case] = (
    DATA | METADATA | ADMIN | GROUPS | TRANSACTIONS | SHARE_STATE | SECURITY | VOTERS
)

# Administrators may turn to a controller themselves (KIP-919). Apache's fails with every question
# about credentials.
CONTROLLER_CASES: dict[str, Case] = {
    name: case
    for name, case in (METADATA | ADMIN | SECURITY | NODES | VOTERS).items()
    if "controller" in APIS[case.key].listeners
    and case.key is not ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
}
