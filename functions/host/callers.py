"""Who may call: where Knative's OIDC is on, a sender shows a ServiceAccount's token, and the hub says whose it is."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from functions.access.errors import AccessError
from functions.host.host import Answer, later

if TYPE_CHECKING:
    from collections.abc import Callable

    from functions.access.client import Client

REVIEWS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_BELIEVED_SECONDS: Final = 60.0
"""How long what the hub said of a token is remembered; less than any token holds."""
_REMEMBERED: Final = 1024
_UNAUTHENTICATED: Final = Answer(status=401, outcome="unauthenticated", body="a token for this audience is required")


class _Known(NamedTuple):
    """What the hub said of a token, and until when that is believed."""

    refusal: Answer | None
    until: float


class Callers:
    """Tells who may call from who may not."""

    def __init__(self, hub: Client, audience: str, namespace: str, *, monotonic: Callable[[], float]) -> None:
        """Keep the settings.

        Args:
            hub: Reviews tokens.
            audience: For whom a token has to be made.
            namespace: Whose ServiceAccounts may call.
            monotonic: The time in seconds.
        """
        self._hub = hub
        self._audience = audience
        self._prefix = f"system:serviceaccount:{namespace}:"
        self._monotonic = monotonic
        self._known: dict[bytes, _Known] = {}

    async def refusal(self, authorization: str | None) -> Answer | None:
        """The answer to a caller who may not call; None for one who may.

        Args:
            authorization: The header of that name.
        """
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token or not token.isascii():
            return _UNAUTHENTICATED
        digest, now = hashlib.sha256(token.encode()).digest(), self._monotonic()
        known = self._known.get(digest)
        if known is None or known.until < now:
            try:
                known = _Known(self._judged(await self._review(token)), now + _BELIEVED_SECONDS)
            except AccessError as trouble:
                return later(f"hub: whose token it is cannot be told: {trouble}", None, outcome="unreviewed")
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[digest] = known
        return known.refusal

    async def _review(self, token: str) -> dict[str, Any]:
        spec = {"token": token, "audiences": [self._audience]}
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        return await self._hub.create(REVIEWS, review)

    def _judged(self, review: dict[str, Any]) -> Answer | None:
        status = review.get("status") or {}
        if not status.get("authenticated") or self._audience not in (status.get("audiences") or ()):
            return _UNAUTHENTICATED
        name = str((status.get("user") or {}).get("username", ""))
        if name.startswith(self._prefix):
            return None
        return Answer(
            status=403, outcome="forbidden", body=f"only ServiceAccounts of {self._prefix.split(':')[2]} may call"
        )
