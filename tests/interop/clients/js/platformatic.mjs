// @platformatic/kafka: both group protocols; zstd needs a later Node.js than the oldest that it supports.
import assert from 'node:assert/strict'
import { Admin, ConfigResourceTypes, Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'
import { eventually, login, main, tls } from './scenarios.mjs'

const SET_CONFIG = 0
const EARLIEST = -2n

class Client {
  codecs = ['gzip', 'snappy', 'lz4']
  #options
  #admin
  #open = []
  #transactional

  static async open (bootstrap) {
    const client = new Client()
    client.#options = {
      clientId: 'scenarios', bootstrapBrokers: [bootstrap], ...(tls && { tls }), ...(login && { sasl: login }),
    }
    client.#admin = new Admin(client.#options)
    return client
  }

  async createTopic (topic, partitions) {
    await this.#admin.createTopics({ topics: [topic], partitions, replicas: 1 })
  }

  async send (topic, records, compression) {
    const producer = new Producer({ ...this.#options, serializers: stringSerializers, idempotent: true })
    const messages = records.map(({ timestampMs, ...record }) => ({
      ...record, topic, ...(timestampMs && { timestamp: BigInt(timestampMs) }),
    }))
    await producer.send({ messages, compression, acks: -1 })
    await producer.close()
  }

  async transact (transactionalId, topic, records, end, member) {
    // One for all transactions: another one with the same id would be fenced, since this client gives 0 as the producer id
    // that it had.
    this.#transactional ??= new Producer({
      ...this.#options, serializers: stringSerializers, idempotent: true, transactionalId,
    })
    const producer = this.#transactional
    const transaction = await producer.beginTransaction()
    await transaction.send({ messages: records.map(record => ({ ...record, topic })), acks: -1 })
    if (member) {
      await transaction.addConsumer(member.consumer)
      await transaction.addOffset(member.lastMessage)
    }
    await transaction[end]()
  }

  async join (groupId, topic, groupProtocol) {
    const timing = groupProtocol === 'classic' ? { sessionTimeout: 10_000, rebalanceTimeout: 10_000, heartbeatInterval: 200 } : {}
    const consumer = new Consumer({
      ...this.#options, groupId, groupProtocol, deserializers: stringDeserializers, maxWaitTime: 100, autocommit: false, ...timing,
    })
    this.#open.push(consumer)
    const member = new Member(consumer, topic)
    await member.start()
    return member
  }

  async committedOffsets (groupId, topic) {
    const [found] = await this.#admin.listConsumerGroupOffsets({ groups: [groupId] })
    const topics = found.topics.filter(each => each.name === topic)
    return topics.flatMap(each => each.partitions.map(partition => Number(partition.committedOffset)))
  }

  async administer (topic) {
    const admin = this.#admin
    await this.createTopic(topic, 2)
    const resource = { resourceType: ConfigResourceTypes.TOPIC, resourceName: topic }
    const entry = { name: 'retention.ms', configOperation: SET_CONFIG, value: '1234567' }
    await admin.incrementalAlterConfigs({ resources: [{ ...resource, configs: [entry] }] })
    await admin.createPartitions({ topics: [{ name: topic, count: 3 }] })
    await eventually('three partitions', async () => {
      const metadata = await admin.metadata({ topics: [topic], forceUpdate: true })
      return metadata.topics.get(topic).partitions.length === 3
    })
    const [described] = await admin.describeConfigs({ resources: [{ ...resource, configurationKeys: ['retention.ms'] }] })
    assert.deepEqual(described.configs.map(each => [each.name, each.value]), [['retention.ms', '1234567']])
    await this.send(topic, Array.from({ length: 30 }, (_, n) => ({ partition: n % 3, value: `${n}` })), 'none')
    const deleted = await admin.deleteRecords({ topics: [{ name: topic, partitions: [{ partition: 1, offset: 4n }] }] })
    assert.equal(deleted[0].partitions[0].lowWatermark, 4n)
    const asked = [{ partitionIndex: 1, timestamp: EARLIEST }]
    const [listed] = await admin.listOffsets({ topics: [{ name: topic, partitions: asked }] })
    assert.equal(listed.partitions[0].offset, 4n)
    const groupId = `${topic}-group`
    await admin.alterConsumerGroupOffsets({ groupId, topics: [{ name: topic, partitionOffsets: [{ partition: 1, offset: 7n }] }] })
    assert((await admin.listGroups()).has(groupId))
    assert.equal((await admin.describeGroups({ groups: [groupId] })).get(groupId).state, 'EMPTY')
    const dirs = await admin.describeLogDirs({ topics: [{ name: topic, partitions: [1] }] })
    assert.equal(dirs.flatMap(each => each.results).flatMap(each => each.topics).length, 1)
    await admin.deleteGroups({ groups: [groupId] })
    await assert.rejects(admin.deleteGroups({ groups: [groupId] }))
    await admin.deleteTopics({ topics: [topic] })
    assert(!(await admin.listTopics()).includes(topic))
  }

  async close () {
    await Promise.allSettled(this.#open.filter(each => !each.closed).map(each => each.close(true)))
    await this.#transactional?.close()
    await this.#admin.close()
  }
}

class Member {
  records = []
  lastMessage
  consumer
  #topic

  constructor (consumer, topic) {
    this.consumer = consumer
    this.#topic = topic
  }

  async start () {
    const stream = await this.consumer.consume({ topics: [this.#topic], mode: 'committed', fallbackMode: 'earliest' })
    stream.on('error', error => console.error(error))
    stream.on('data', message => {
      const { partition, offset, value, key, headers, timestamp } = message
      const read = { partition, offset: Number(offset), value }
      if (key) read.key = key
      if (headers.size > 0) {
        read.headers = Object.fromEntries(headers)
        read.timestampMs = Number(timestamp)
      }
      this.lastMessage = message
      this.records.push(read)
    })
  }

  owned () {
    const assigned = this.consumer.assignments ?? []
    return assigned.filter(each => each.topic === this.#topic).flatMap(each => each.partitions)
  }

  async commit () {
    const ends = new Map(this.records.map(each => [each.partition, each.offset + 1]))
    await this.consumer.commit({
      offsets: this.owned().filter(each => ends.has(each)).map(partition => (
        { topic: this.#topic, partition, offset: BigInt(ends.get(partition)), leaderEpoch: 0 }
      )),
    })
  }

  async leave () {
    await this.consumer.close(true)
  }
}

await main(Client.open)
