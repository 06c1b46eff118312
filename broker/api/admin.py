"""CreateTopics, DeleteTopics, CreatePartitions, ElectLeaders, AlterPartitionReassignments,
ListPartitionReassignments.

Behaviour (Kafka's)
- What changes the cluster is decided by the active controller; its answer comes when the change is
  committed. When it takes longer than the request's timeout_ms every item is answered
  REQUEST_TIMED_OUT, though the change may still happen.
- Clients with a quota of partitions that they may create and delete are named to the controller,
  which counts them: THROTTLING_QUOTA_EXCEEDED, or only a wait before versions 6 of CreateTopics, 5
  of DeleteTopics, 3 of CreatePartitions (KIP-599).
Version notes
- AlterPartitionReassignments 1: allow_replication_factor_change (KIP-860).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kraftrio.base.deferred import Deferred
from kraftrio.broker.api.shared.decision_parts import decide_in_parts
from kraftrio.broker.api.shared.decisions import decide_in_time, in_version
from kraftrio.broker.ports import ClientsController, SchedulerPort
from kraftrio.broker.server.context import HandlerTable, RequestContext
from kraftrio.broker.server.slices.sliced_work import Work
from kraftrio.broker.server.usage.throttling import sender_of
from kraftrio.kraft_meta.controller.mutation_quota import STRICT_SINCE
from kraftrio.wire.messages.admin import ElectLeadersRequest
from kraftrio.wire.protocol.api import ApiKey


class AdminHandlers:
    """Serves the admin APIs of one broker."""

    def __init__(
        self,
        controller: ClientsController,
        scheduler: SchedulerPort,
    ) -> None:
        self._controller = controller
        self._scheduler = scheduler

    def table(self) -> HandlerTable:
        """The handlers by API."""
        return {
            ApiKey.CREATE_TOPICS: self.forward,
            ApiKey.DELETE_TOPICS: self.forward,
            ApiKey.CREATE_PARTITIONS: self.forward,
            ApiKey.ELECT_LEADERS: self.elect_leaders,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self.forward,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: self.forward,
        }

    def forward(self, request: Any, context: RequestContext) -> Work[Any]:
        """Let the active controller decide, for as long as the client waits."""
        return decide_in_parts(
            partial(
                decide_in_time,
                self._submit(request, context),
                self._scheduler,
                api_version=context.api_version,
            ),
            request,
        )

    def _submit(self, request: Any, context: RequestContext) -> Callable[..., Deferred[Any]]:
        """How to ask the controller: in the client's name, if it may count what that changes."""
        if type(request) in STRICT_SINCE:
            return partial(self._controller.submit_for, sender_of(context))
        return self._controller.submit

    def elect_leaders(self, request: ElectLeadersRequest, context: RequestContext) -> Work[Any]:
        """Forward; version 0 reports an error of the whole request in its partitions."""
        return in_version(self.forward(request, context), context.api_version)
