"""What producers and consumers count: the types of `metrics()` and of `on_statistics`.

ProducerMetrics    of a producer                    ottla.client.producing.producer_metrics
ConsumerMetrics    of a consumer, or a connector    ottla.client.streams.consumer_metrics
PartitionMetrics   of one partition of it           ottla.client.streams.consumer_metrics
RequestMetrics     of the requests of any of them   ottla.client.wire.request_metrics
LatencyMetrics     of the requests of one API       ottla.client.wire.request_metrics
"""

from __future__ import annotations

from ottla.client.producing.producer_metrics import ProducerMetrics
from ottla.client.streams.consumer_metrics import ConsumerMetrics, PartitionMetrics
from ottla.client.wire.request_metrics import LatencyMetrics, RequestMetrics

__all__ = ["ConsumerMetrics", "LatencyMetrics", "PartitionMetrics", "ProducerMetrics", "RequestMetrics"]
