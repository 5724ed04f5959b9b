from __future__ import annotations

import os
import pickle
from pathlib import Path

import pyarrow.fs
import pytest

from ottla.spark.errors import LakeError
from ottla.spark.lake.target import LakeTarget, parse_target

HTTP = {"AWS_ENDPOINT_URL": "http://127.0.0.1:5000", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}


def test_a_path_and_a_file_url_are_the_same_place(tmp_path: Path) -> None:
    place = LakeTarget(f"{tmp_path}/a lake", {})
    assert parse_target(tmp_path / "a lake") == parse_target(f"file://{tmp_path}/a%20lake") == place
    assert parse_target("lake").url == os.path.abspath("lake")
    assert place.root == f"{tmp_path}/a lake"
    assert isinstance(place.file_system(), pyarrow.fs.LocalFileSystem)
    assert place.storage_options is None


def test_an_s3_url_has_its_settings_by_amazons_names_in_any_case() -> None:
    given = {"aws_endpoint_url": "http://127.0.0.1:5000", "access_key_id": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    target = parse_target("s3a://bucket/some/lake/", given, {})
    assert target.url == "s3://bucket/some/lake"
    assert target.root == "bucket/some/lake"
    assert target.storage_options == {**HTTP, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    assert isinstance(target.file_system(), pyarrow.fs.S3FileSystem)
    assert pickle.loads(pickle.dumps(target)) == target


def test_what_is_not_given_comes_from_the_environment() -> None:
    environment = {
        "AWS_ACCESS_KEY_ID": "theirs",
        "AWS_SECRET_ACCESS_KEY": "their secret",
        "AWS_SESSION_TOKEN": "token",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL_S3": "http://s3:1",
        "AWS_ENDPOINT_URL": "http://all:1",
        "HOME": "/home",
    }
    assert parse_target("s3://bucket", None, environment).settings == {
        "AWS_ACCESS_KEY_ID": "theirs",
        "AWS_SECRET_ACCESS_KEY": "their secret",
        "AWS_SESSION_TOKEN": "token",
        "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": "http://s3:1",
        "AWS_ALLOW_HTTP": "true",
    }


def test_a_key_that_is_given_is_not_mixed_with_the_environments_secret_and_token() -> None:
    environment = {"AWS_SECRET_ACCESS_KEY": "theirs", "AWS_SESSION_TOKEN": "theirs"}
    assert parse_target(
        "s3://bucket", {"access_key_id": "ours", "secret_access_key": "ours"}, environment
    ).settings == {
        "AWS_ACCESS_KEY_ID": "ours",
        "AWS_SECRET_ACCESS_KEY": "ours",
    }


@pytest.mark.parametrize(
    ("url", "storage", "problem"),
    [
        ("gs://bucket/lake", {}, "'gs://bucket/lake' cannot be used"),
        ("s3:///lake", {}, "is no S3 URL"),
        ("file://other/lake", {}, "names another machine"),
        ("s3://bucket", {"AWS_ENDPOINT_URI": "x"}, "'AWS_ENDPOINT_URI' is unknown; did you mean AWS_ENDPOINT_URL"),
        ("s3://bucket", {"AWS_ENDPOINT_URL": "127.0.0.1:5000"}, "write http://host:port"),
        ("s3://bucket", {"AWS_ENDPOINT_URL": "http://a:1", "AWS_ALLOW_HTTP": "false"}, "forbids it"),
        ("/lake", {"AWS_REGION": "x"}, "has no setting 'AWS_REGION'"),
    ],
)
def test_a_target_that_cannot_be_used_is_refused_with_the_reason(
    url: str, storage: dict[str, str], problem: str
) -> None:
    with pytest.raises(LakeError, match=problem):
        parse_target(url, storage, {})


def test_a_path_of_this_machine_is_refused_where_spark_runs_on_others() -> None:
    here, bucket = parse_target("/lake"), parse_target("s3://bucket", None, {})
    for master in ("local", "local[*]", "local[2,4]", "local-cluster[2,1,1024]"):
        here.refuse_remote_master(master)
    for master in ("spark://host:7077", "yarn", "k8s://host"):
        bucket.refuse_remote_master(master)
        with pytest.raises(LakeError, match="a target that every worker reaches"):
            here.refuse_remote_master(master)


def test_hdfs_without_its_library_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(host: str, port: int) -> None:
        raise OSError(f"Unable to load libhdfs: {host} {port}")

    monkeypatch.setattr(pyarrow.fs, "HadoopFileSystem", no_library, raising=False)
    target = parse_target("hdfs://namenode:8020/lake/")
    assert target.root == "/lake"
    with pytest.raises(LakeError, match=r"namenode 8020; .*ARROW_LIBHDFS_DIR"):
        target.file_system()
