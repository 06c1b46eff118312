"""Has the authorizer decide by each new image of the metadata: `AclUpdates`.

Called by: `node`, before anybody else acts by that image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kraftrio.broker.security.acls.standard_authorizer import StandardAuthorizer
from kraftrio.kraft_meta.metadata.acl_image import AclChanges
from kraftrio.kraft_meta.metadata.image import MetadataDelta, MetadataImage

FROZEN_AT_ONCE: Final = 1000  # ACLs; a full collection looks at 10,000 of them for 20 ms


class AclUpdates:
    """See the module.

    Args:
        freeze_objects: called once many ACLs were made, which stay (see `Environment`).
    """

    def __init__(self, authorizer: StandardAuthorizer, freeze_objects: Callable[[], None]) -> None:
        self._authorizer = authorizer
        self._freeze_objects = freeze_objects
        self._unfrozen_count = 0

    def on_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Take over the ACLs of an image; before the first one nothing is known of them."""
        if image.offset < 0:
            return
        changes = delta.part(AclChanges)
        self._authorizer.update(changes)
        self._unfrozen_count += len(changes.changed)
        if self._unfrozen_count >= FROZEN_AT_ONCE:
            self._freeze_objects()
            self._unfrozen_count = 0
