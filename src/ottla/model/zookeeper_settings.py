"""How a broker, or a consumer without a master, secures its connections to ZooKeeper: Kafka's names, and the digest."""

from __future__ import annotations

from typing import Final

from ottla.model.setting import AnySetting, flag, optional_password, optional_text, word

ZOOKEEPER_DIGEST: Final = optional_password(
    "zookeeper.digest",
    "`USER:PASSWORD` of ZooKeeper's scheme digest: all nodes belong to it then, and no other user can read them.  "
    "Better in a file: `zookeeper.digest.file`.",
)
ZOOKEEPER_DIGEST_FILE: Final = optional_text(
    "zookeeper.digest.file", "A file with `USER:PASSWORD` instead, readable by its owner only."
)
ZOOKEEPER_CONSUMERS_DIGEST: Final = optional_password(
    "zookeeper.consumers.digest",
    "Of brokers: the `USER:PASSWORD` that consumers without a master have as their `zookeeper.digest`.  It reads the "
    "brokers' addresses and the topics, and changes only what is below `/consumers`.  Unset: such consumers need the "
    "brokers' own digest.",
)
ZOOKEEPER_CONSUMERS_DIGEST_FILE: Final = optional_text(
    "zookeeper.consumers.digest.file", "A file with `USER:PASSWORD` instead, readable by its owner only."
)
ZOOKEEPER_SET_ACL: Final = flag(
    "zookeeper.set.acl",
    True,
    "Nodes are created with ACLs where there is a digest.  `false` is for the first round of a change from an open "
    "tree: the brokers log in, and those without a digest still read what they create.  Kafka's default is false.",
)
ZOOKEEPER_SSL_CLIENT_ENABLE: Final = flag(
    "zookeeper.ssl.client.enable",
    False,
    "Connect to ZooKeeper by TLS: its `secureClientPort`.  Host names are verified, and no CA counts but those of "
    "`zookeeper.ssl.truststore.location`.",
)
ZOOKEEPER_SSL_TRUSTSTORE_TYPE: Final = word("zookeeper.ssl.truststore.type", "PEM", "Only PEM is offered.")
ZOOKEEPER_SSL_TRUSTSTORE_LOCATION: Final = optional_text(
    "zookeeper.ssl.truststore.location", "A PEM file with the CAs of the ZooKeeper servers' certificates."
)
ZOOKEEPER_SSL_KEYSTORE_TYPE: Final = word("zookeeper.ssl.keystore.type", "PEM", "Only PEM is offered.")
ZOOKEEPER_SSL_KEYSTORE_LOCATION: Final = optional_text(
    "zookeeper.ssl.keystore.location",
    "A PEM file with a private key and its certificate, for servers that demand one (`ssl.clientAuth=need`, their "
    "default).",
)
ZOOKEEPER_SSL_KEYSTORE_PASSWORD: Final = optional_password(
    "zookeeper.ssl.keystore.password", "The password of that private key, when it is encrypted."
)
ZOOKEEPER_UNPROTECTED: Final = flag(
    "zookeeper.unprotected.unsafely.allowed",
    False,
    "With an authorizer a broker starts although any client of ZooKeeper may change the tree, and with it the users "
    "and the ACLs.",
)

# Those that clients of ZooKeeper have in common with brokers.
ZOOKEEPER_CLIENT_SETTINGS: Final[tuple[AnySetting, ...]] = (
    ZOOKEEPER_DIGEST,
    ZOOKEEPER_DIGEST_FILE,
    ZOOKEEPER_SSL_CLIENT_ENABLE,
    ZOOKEEPER_SSL_TRUSTSTORE_TYPE,
    ZOOKEEPER_SSL_TRUSTSTORE_LOCATION,
    ZOOKEEPER_SSL_KEYSTORE_TYPE,
    ZOOKEEPER_SSL_KEYSTORE_LOCATION,
    ZOOKEEPER_SSL_KEYSTORE_PASSWORD,
)
ZOOKEEPER_SECURITY_SETTINGS: Final[tuple[AnySetting, ...]] = (
    *ZOOKEEPER_CLIENT_SETTINGS,
    ZOOKEEPER_CONSUMERS_DIGEST,
    ZOOKEEPER_CONSUMERS_DIGEST_FILE,
    ZOOKEEPER_SET_ACL,
    ZOOKEEPER_UNPROTECTED,
)
