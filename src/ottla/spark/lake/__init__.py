"""Topics into lake tables: data and offsets in one commit (`load`)."""

from __future__ import annotations

from ottla.runtime.installed import naming_what_to_install

with naming_what_to_install("lake"):
    from ottla.spark.errors import LakeError
    from ottla.spark.lake.compaction import Compaction, compact, vacuum
    from ottla.spark.lake.debezium import debezium_json, debezium_registry
    from ottla.spark.lake.delta_appends import append_once
    from ottla.spark.lake.erasure import Erasure, erase
    from ottla.spark.lake.formats import IcebergTarget, UnityTarget, catalog_table
    from ottla.spark.lake.lake_table import TableTarget
    from ottla.spark.lake.load import LakeLoad, Loader, LoadState, load_topic_to_lake
    from ottla.spark.lake.rows import json_field
    from ottla.spark.lake.spark_table import spark_table
    from ottla.spark.lake.target import LakeTarget, parse_target

__all__ = [
    "Compaction",
    "Erasure",
    "IcebergTarget",
    "LakeError",
    "LakeLoad",
    "LakeTarget",
    "LoadState",
    "Loader",
    "TableTarget",
    "UnityTarget",
    "append_once",
    "catalog_table",
    "compact",
    "debezium_json",
    "debezium_registry",
    "erase",
    "json_field",
    "load_topic_to_lake",
    "parse_target",
    "spark_table",
    "vacuum",
]
