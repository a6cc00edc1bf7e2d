"""Sensitive headers: which ones they are, and how their values are hidden from readers.

Invariant: the value of a sensitive header leaves the API only in callbacks. Everywhere else
`MASK` stands in its place; written back, the mask means "keep the stored value".
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

MASK: Final = "***"

# Matched anywhere in a name. A header that is masked without need is a nuisance, one that is shown
# without need is a leak: the list is generous.
_SENSITIVE: Final = re.compile(
    r"auth|token|secret|passw|passphrase|api[-_.]?key|credential|signature|cookie|session|jwt|bearer"
    r"|csrf|xsrf|vault|(?:^|[-_.])(?:key|pass|pwd|sig|hmac|otp|pin|sid|access)$",
    re.IGNORECASE,
)
_LEAST_QUOTED: Final = 4  # characters: what is shorter would be found in any text
_USER_INFO: Final = re.compile(r"(?:^|(?<=//))[^/?#\s]*@")


@lru_cache(maxsize=1_024)
def is_sensitive(name: str) -> bool:
    """Whether the value of this header may be a credential."""
    return _SENSITIVE.search(name) is not None


def mask_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers as readers see them."""
    return {name: MASK if is_sensitive(name) else value for name, value in headers.items()}


def mask_user_info(url: str) -> str:
    """The URL without the user name and the password in it."""
    return _USER_INFO.sub(f"{MASK}@", url)


def mask_values(text: str, headers: Mapping[str, str]) -> str:
    """A text without the values of sensitive headers, which a worker may have quoted."""
    for name, value in headers.items():
        if is_sensitive(name):
            for part in (value, *value.split()):
                if len(part) >= _LEAST_QUOTED:
                    text = text.replace(part, MASK)
    return text


def hidden_changes(written: Mapping[str, str], stored: Mapping[str, str]) -> list[str]:
    """The sensitive headers whose written value is not the stored one; a mask is no change."""
    return [
        name
        for name, value in restore_headers(written, stored).items()
        if is_sensitive(name) and stored.get(name) != value
    ]


def masked_names(headers: Mapping[str, str]) -> list[str]:
    """The sensitive headers that carry the mask instead of a value."""
    return [name for name, value in headers.items() if value == MASK and is_sensitive(name)]


def restore_headers(written: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
    """The written headers, each mask replaced by the stored value if there is one."""
    values = {name.lower(): value for name, value in stored.items()}
    kept = {name: values.get(name.lower(), MASK) for name in masked_names(written)}
    return {**written, **kept}
