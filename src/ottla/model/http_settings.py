"""The settings of the servers for HTTP, the schema registry and the admin listener.

As those of TLS they apply to both, or with `listener.name.registry.` and `listener.name.admin.` to one.
"""

from __future__ import annotations

from typing import Final

from ottla.model.setting import AnySetting, word, words

REGISTRY: Final = "REGISTRY"
ADMIN: Final = "ADMIN"
NO_METHOD: Final = "NONE"
BASIC: Final = "BASIC"
BEARER: Final = "BEARER"
EVERY_USER: Final = "*"

AUTHENTICATION_METHOD: Final = words(
    "authentication.method",
    (NO_METHOD,),
    "How clients of the schema registry and of the admin listener log in: BASIC with the name and password of a user "
    "of SCRAM, BEARER with a token as for OAUTHBEARER.  With `ssl.client.auth` a certificate is a login, too.",
    choices=(NO_METHOD, BASIC, BEARER),
)
AUTHENTICATION_ROLES: Final = word(
    "authentication.roles",
    EVERY_USER,
    "Who may read and write there: `ROLE=PRINCIPAL` with semicolons between, such as `read=*;write=User:alice`.  `*` "
    "is every client that has logged in, User:ANONYMOUS one that has not.  Write includes read; super users have both.",
)
ADMIN_ALLOWED_HOSTS: Final = words(
    "admin.allowed.hosts",
    (),
    "Further names by which clients reach the admin listener; `*` is any.  It refuses requests whose `Host` is neither "
    "one of these nor an address, `localhost`, this machine's name or that of its listener.",
)

# Those that one of the servers may have for itself.
HTTP_SETTINGS: Final[tuple[AnySetting, ...]] = (AUTHENTICATION_METHOD, AUTHENTICATION_ROLES)
