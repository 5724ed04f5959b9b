from __future__ import annotations

from itertools import permutations
from uuid import UUID

import pytest

import ottla.mirror
from ottla.mirror.journal import CopyClaim
from ottla.mirror.options import MirrorOptions, Names
from ottla.mirror.plan import ClusterTopics, TopicAction, TopicPlan, TopicView, plan_topics, unclaimed_topics
from ottla.model.errors import ConfigError
from ottla.model.own_names import OWN_TOPICS

HERE, THERE = UUID(int=1), UUID(int=2)
OLD_NAME = "Decision"


def topic(topic_id: UUID, partitions: int = 3, name: str = "clicks", **configs: str) -> TopicView:
    return TopicView(name, topic_id, partitions, configs={key.replace("_", "."): each for key, each in configs.items()})


def view(cluster_id: str, *topics: TopicView, claims: tuple[CopyClaim, ...] = ()) -> ClusterTopics:
    return ClusterTopics(cluster_id, {each.name: each for each in topics}, {each.topic: each for each in claims})


def claim(source_id: UUID = HERE, target_id: UUID = THERE, *origins: str) -> CopyClaim:
    return CopyClaim("clicks", target_id, source_id, origins or ("live",), 0)


def the_plan(source: ClusterTopics, target: ClusterTopics, **options: str) -> TopicPlan:
    (found,) = plan_topics(source, target, MirrorOptions(**options))  # type: ignore[arg-type]
    return found


def test_missing_topic_is_created_with_its_own_settings() -> None:
    source = topic(HERE, 5, retention_ms="7", min_insync_replicas="2", compression_type="zstd")
    plan = the_plan(view("live", source), view("offline"))
    assert (plan.decision, plan.partitions_count) == (TopicAction.CREATE, 5)
    assert plan.set_configs == {"retention.ms": "7"}
    assert plan.origin_cluster_ids == ("live",)


def test_copy_is_kept_in_step() -> None:
    source = view("live", topic(HERE, 5, retention_ms="7"))
    target = view("offline", topic(THERE, 3, cleanup_policy="compact", min_insync_replicas="2"), claims=(claim(),))
    plan = the_plan(source, target)
    assert plan.decision is TopicAction.COPY
    assert plan.adds_partitions
    assert (plan.set_configs, plan.unset_configs) == ({"retention.ms": "7"}, ("cleanup.policy",))


def test_topic_of_the_target_that_no_mirror_copies_is_adopted_when_it_is_empty() -> None:
    source, target = view("live", topic(HERE)), view("offline", topic(THERE, retention_ms="9"))
    assert unclaimed_topics(source, target, Names((".*",))) == {"clicks": 3}
    plan = the_plan(source, target)
    assert (plan.decision, plan.unset_configs) == (TopicAction.ADOPT, ())
    for has_records in (True, None):
        filled = target.with_records({"clicks": has_records})
        assert the_plan(source, filled).decision is TopicAction.REFUSE
        assert the_plan(source, filled, existing_topics="append").decision is TopicAction.ADOPT


def test_copy_of_another_cluster_is_left_alone() -> None:
    target = view("offline", topic(THERE), claims=(claim(HERE, THERE, "other"),))
    assert the_plan(view("live", topic(HERE)), target).decision is TopicAction.SKIP


@pytest.mark.parametrize("origins", [("offline",), ("offline", "between"), ("first", "offline", "between")])
def test_copy_never_goes_back_to_where_its_records_were(origins: tuple[str, ...]) -> None:
    source = view("live", topic(HERE), claims=(claim(UUID(int=5), HERE, *origins),))
    assert the_plan(source, view("offline")).decision is TopicAction.SKIP
    elsewhere = the_plan(source, view("third"))
    assert elsewhere.decision is TopicAction.CREATE
    assert elsewhere.origin_cluster_ids == (*origins, "live")


def test_claim_of_a_deleted_topic_of_the_same_name_says_nothing() -> None:
    source = view("live", topic(HERE), claims=(claim(UUID(int=5), UUID(int=6), "offline"),))
    assert the_plan(source, view("offline")).decision is TopicAction.CREATE
    target = view("offline", topic(THERE), claims=(claim(HERE, UUID(int=6)),))
    assert the_plan(view("live", topic(HERE)), target).decision is TopicAction.ADOPT


def test_recreated_topic_is_appended_or_refused() -> None:
    source = view("live", topic(UUID(int=8)))
    target = view("offline", topic(THERE), claims=(claim(),))
    assert the_plan(source, target).decision is TopicAction.APPEND
    assert the_plan(source, target, recreated_topics="fail").decision is TopicAction.REFUSE


def test_topics_of_old_brokers_are_known_by_their_names() -> None:
    nothing = UUID(int=0)
    source = view("live", topic(nothing))
    target = view("offline", topic(nothing), claims=(claim(HERE, THERE),))
    assert the_plan(source, target).decision is TopicAction.COPY


def test_clusters_own_topics_are_never_copied() -> None:
    assert {"ottla-audit-results", "ottla-dead-letter-replays", "__consumer_offsets"} < OWN_TOPICS
    own = [topic(HERE, 1, name) for name in (*OWN_TOPICS, "mine")]
    internal = TopicView("other", HERE, 1, is_internal=True)
    plans = plan_topics(view("live", *own, internal), view("offline"), MirrorOptions())
    assert [plan.topic for plan in plans] == ["mine"]


def test_names_are_whole_and_exclusions_win() -> None:
    names = Names(("page-.*", "clicks"), (".*-test",))
    assert [each for each in ("page-views", "page-test", "clicks", "clicks2", "my-page-views") if each in names] == [
        "page-views",
        "clicks",
    ]


def test_options_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(ConfigError, match="is not a pattern"):
        Names(("(",))
    with pytest.raises(ConfigError, match="start is 'now'"):
        MirrorOptions(start="now")
    with pytest.raises(ConfigError, match="rate_bytes_s is 0"):
        MirrorOptions(rate_bytes_s=0)
    with pytest.raises(ConfigError, match="progress_interval_ms is 30000; with transactions it must be below 30000"):
        MirrorOptions(is_transactional=True, progress_interval_ms=30_000)
    MirrorOptions(is_transactional=True, progress_interval_ms=29_999)
    MirrorOptions(progress_interval_ms=30_000)


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("at_once", [True, False])
def test_ring_that_began_at_once_is_opened_at_one_place(order: tuple[int, ...], at_once: bool) -> None:
    """Each mirror has claimed its copy before it could see the others' claims."""
    names = "abc"
    ids = {name: UUID(int=10 + at) for at, name in enumerate(names)}
    links = [("a", "b"), ("b", "c"), ("c", "a")]
    claims = {there: CopyClaim("clicks", ids[there], ids[here], (here,), 0) for here, there in links}

    def view_of(name: str, known: dict[str, CopyClaim]) -> ClusterTopics:
        return view(name, topic(ids[name]), claims=(known[name],) if name in known else ())

    def refresh(here: str, there: str, known: dict[str, CopyClaim]) -> TopicPlan:
        plan = the_plan(view_of(here, known), view_of(there, known))
        if plan.gives_way:
            del claims[there]
        if plan.is_reclaimed:
            claims[there] = CopyClaim("clicks", ids[there], plan.source_topic_id, plan.origin_cluster_ids, 0)
        return plan

    for _ in range(6):
        seen = dict(claims)
        plans = [refresh(*links[each], seen if at_once else claims) for each in order]
    assert sorted(plan.decision.value for plan in plans) == ["copy", "copy", "skip"]
    assert not any(plan.is_reclaimed or plan.gives_way for plan in plans), "it has come to rest"
    # The mirror from c to a gave way, so the records of a reach the others.
    assert {name: claim.origin_cluster_ids for name, claim in claims.items()} == {"b": ("a",), "c": ("a", "b")}


def test_decision_is_the_action_of_a_plan_and_warns_of_its_end() -> None:
    with pytest.warns(DeprecationWarning, match="Decision is named TopicAction"):
        found = getattr(ottla.mirror, OLD_NAME)
    assert found is TopicAction
