import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { after, before, test } from 'node:test'
import kafkajs from 'kafkajs'
import { pay } from './orders.js'

const kafka = new kafkajs.Kafka({
  brokers: process.env.KAFKA_BOOTSTRAP_SERVERS.split(','),
  logLevel: kafkajs.logLevel.ERROR
})
// A topic for this file: test files run beside each other, at one broker.
const topic = `orders-${randomUUID()}`
const admin = kafka.admin()

before(async () => {
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: 3 }] })
})
after(() => admin.disconnect())

test('a paid order is announced', { timeout: 60_000 }, async () => {
  await pay(kafka, topic, '7')

  const consumer = kafka.consumer({ groupId: topic, maxWaitTimeInMs: 100 })
  try {
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    const { message } = await new Promise((resolve, reject) => {
      consumer.run({ eachMessage: async (payload) => resolve(payload) }).catch(reject)
    })
    assert.equal(message.key.toString(), '7')
    assert.deepEqual(JSON.parse(message.value.toString()), { order: '7', state: 'paid' })
  } finally {
    await consumer.disconnect()
  }
})
