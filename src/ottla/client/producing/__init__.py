"""Five producers, and the parts that they share.  Which one to use:

ottla.Producer       messages from any thread of a program, sent in batches by a thread of the producer
ottla.aio.Producer   the same producer for coroutines
RecordProducer       records of one thread that waits itself: tools, and topics that are logs
RawProducer          whole batches that exist already: copies of logs, replays
BatchTransactions    the same in transactions

The parts:

send ─▶ SendStep ─▶ Accumulator (open batches, a lock) ─▶ SendEngine (a thread: encodes, compresses) ─▶ RawProducer
Delivery ◀── BatchDelivery ◀───────────────────────────── outcomes of batches ◀─────────────────────────┘

RawProducer      drives a ProduceMachine over connections; blocking, without threads
ProduceMachine   the state: queues, sequence numbers, splits, halts, requests in flight; pure
"""
