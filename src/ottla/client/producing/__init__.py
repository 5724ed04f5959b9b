"""The producer for users: messages are collected by partition, and sent in batches by a thread of the producer's own.

send ─▶ Offer ─▶ Accumulator (open batches, a lock) ─▶ SendEngine (a thread: encodes, compresses) ─▶ RawProducer
Delivery ◀── Settlement ◀───────────────────────────── outcomes of batches ◀─────────────────────────┘

Producer        its face for threads          producing.producer
aio Producer    its face for asyncio          producing.aio_producer
"""
