"""Detects sensitive headers and masks their values.

Invariant: the value of a sensitive header is sent only in callbacks. Everywhere else `MASK`
replaces it. In an update, the mask means "keep the stored value".
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

MASK: Final = "***"

# Matched anywhere in a name. A needless mask is a nuisance, a missing one is a leak, so the list is
# generous.
_SENSITIVE: Final = re.compile(
    r"auth|token|secret|passw|passphrase|api[-_.]?key|credential|signature|cookie|session|jwt|bearer"
    r"|csrf|xsrf|vault|(?:^|[-_.])(?:key|pass|pwd|sig|hmac|otp|pin|sid|access)$",
    re.IGNORECASE,
)
_MIN_MASKED: Final = 4  # characters; shorter values would match in any text
_USER_INFO: Final = re.compile(r"(?:^|(?<=//))[^/?#\s]*@")


@lru_cache(maxsize=1_024)
def is_sensitive(name: str) -> bool:
    """Whether the value of this header may be a credential."""
    return _SENSITIVE.search(name) is not None


def mask_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers with sensitive values masked."""
    return {name: MASK if is_sensitive(name) else value for name, value in headers.items()}


def mask_user_info(url: str) -> str:
    """The URL with its user name and password masked."""
    return _USER_INFO.sub(f"{MASK}@", url)


def mask_values(text: str, headers: Mapping[str, str]) -> str:
    """A text with the values of sensitive headers masked. A worker may have echoed them."""
    for name, value in headers.items():
        if is_sensitive(name):
            for part in (value, *value.split()):
                if len(part) >= _MIN_MASKED:
                    text = text.replace(part, MASK)
    return text


def hidden_changes(updated: Mapping[str, str], stored: Mapping[str, str]) -> list[str]:
    """The sensitive headers whose updated value differs from the stored one. A mask does not."""
    return [
        name
        for name, value in restore_headers(updated, stored).items()
        if is_sensitive(name) and stored.get(name) != value
    ]


def masked_names(headers: Mapping[str, str]) -> list[str]:
    """The sensitive headers whose value is the mask."""
    return [name for name, value in headers.items() if value == MASK and is_sensitive(name)]


def restore_headers(updated: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
    """The updated headers, with each mask replaced by the stored value, if any."""
    values = {name.lower(): value for name, value in stored.items()}
    kept = {name: values.get(name.lower(), MASK) for name in masked_names(updated)}
    return {**updated, **kept}
