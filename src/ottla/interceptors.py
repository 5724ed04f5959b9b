"""A user's code in producers and consumers (KIP-42): the setting `interceptors` of `Producer` and `Consumer`.

ProducerInterceptor   sees each `send`, and its end     ottla.client.producing.interceptor
OutgoingMessages      the messages of one `send`        ottla.client.producing.interceptor
ConsumerInterceptor   sees messages, and commits        ottla.client.streams.interceptors
"""

from __future__ import annotations

from ottla.client.producing.interceptor import OutgoingMessages, ProducerInterceptor
from ottla.client.streams.interceptors import ConsumerInterceptor

__all__ = ["ConsumerInterceptor", "OutgoingMessages", "ProducerInterceptor"]
