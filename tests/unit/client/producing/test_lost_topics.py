from __future__ import annotations

import pytest

from ottla.client.producing.errors import MessageNotDelivered
from ottla.client.producing.settings import ProducerSettings
from ottla.client.wire.errors import UnknownTopic
from tests.unit.client.fake_cluster import FakeCluster
from tests.unit.client.producing.sending import Sending


@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_message_fails_when_its_topic_is_deleted_before_it_is_sent(acks: int) -> None:
    """Nothing is under way then, so nothing comes that would end a wait for it."""
    fake = FakeCluster()
    (partition,) = fake.add_topic("t", 1)
    it = Sending(fake, ProducerSettings(acks=acks, metadata_max_age_ms=1_000))
    it.send("t", b"before")
    it.flush()
    late = it.send("t", b"after")
    del fake.partitions[partition]
    fake.clock.advance(1_000)
    it.flush()
    with pytest.raises(MessageNotDelivered, match="does not exist") as told:
        late.wait(0)
    assert isinstance(told.value.reason, UnknownTopic)
    assert not told.value.may_be_stored
