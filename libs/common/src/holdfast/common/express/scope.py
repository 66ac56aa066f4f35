"""Keys that the server and the app agree on in `scope["extensions"]` of an ASGI request."""

from typing import Final

CORRELATION_ID: Final = "holdfast.correlation_id"
PEER_CERTIFICATE: Final = "holdfast.peer_certificate"
"""The client's certificate as DER bytes; None without mutual TLS."""
IS_OBSERVED: Final = "holdfast.is_observed"
"""Set when the request was counted where it ran, so that nobody counts it again."""
