// kafkajs: classic groups; gzip is the one codec that it brings itself.
import assert from 'node:assert/strict'
import kafkajs from 'kafkajs'
import { eventually, login, main, tls } from './scenarios.mjs'

const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs

class Client {
  codecs = ['gzip']
  #kafka
  #admin
  #open = []

  static async open (bootstrap) {
    const client = new Client()
    const sasl = login && { ...login, mechanism: login.mechanism.toLowerCase() }
    client.#kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR, ssl: tls, sasl })
    client.#admin = client.#kafka.admin()
    await client.#admin.connect()
    return client
  }

  async createTopic (topic, numPartitions) {
    await this.#admin.createTopics({ topics: [{ topic, numPartitions }] })
  }

  async send (topic, records, codec) {
    const producer = this.#kafka.producer({ idempotent: true })
    await producer.connect()
    const messages = records.map(({ timestampMs, ...record }) => ({
      ...record, ...(timestampMs && { timestamp: String(timestampMs) }),
    }))
    const compression = codec === 'gzip' ? CompressionTypes.GZIP : CompressionTypes.None
    await producer.send({ topic, messages, compression })
    await producer.disconnect()
  }

  async transact (transactionalId, topic, messages, end, member) {
    const producer = this.#kafka.producer({ idempotent: true, maxInFlightRequests: 1, transactionalId })
    await producer.connect()
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages })
    if (member) {
      const partitions = [{ partition: 0, offset: String(member.records.at(-1).offset + 1) }]
      await transaction.sendOffsets({ consumerGroupId: member.groupId, topics: [{ topic, partitions }] })
    }
    await transaction[end]()
    await producer.disconnect()
  }

  async join (groupId, topic, _protocol) {
    const consumer = this.#kafka.consumer({ groupId, heartbeatInterval: 200, maxWaitTimeInMs: 100 })
    this.#open.push(consumer)
    const member = new Member(consumer, groupId, topic)
    await member.start()
    return member
  }

  async committedOffsets (groupId, topic) {
    const [found] = await this.#admin.fetchOffsets({ groupId, topics: [topic] })
    return found.partitions.map(each => Number(each.offset))
  }

  async administer (topic) {
    const admin = this.#admin
    await this.createTopic(topic, 2)
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
    const entry = { name: 'retention.ms', value: '1234567' }
    await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries: [entry] }] })
    await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
    await eventually('three partitions', async () => {
      const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
      return topics[0].partitions.length === 3
    })
    const described = await admin.describeConfigs({ includeSynonyms: false, resources: [resource] })
    const retention = described.resources[0].configEntries.find(each => each.configName === 'retention.ms')
    assert.equal(retention.configValue, '1234567')
    await this.send(topic, Array.from({ length: 30 }, (_, n) => ({ partition: n % 3, value: `${n}` })), 'none')
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 1, offset: '4' }] })
    const offsets = await admin.fetchTopicOffsets(topic)
    assert.deepEqual(offsets.map(each => [each.partition, each.low, each.high]).sort(),
      [[0, '0', '10'], [1, '4', '10'], [2, '0', '10']])
    const groupId = `${topic}-group`
    await admin.setOffsets({ groupId, topic, partitions: [{ partition: 1, offset: '7' }] })
    const { groups: listed } = await admin.listGroups()
    assert(listed.some(each => each.groupId === groupId))
    const { groups } = await admin.describeGroups([groupId])
    assert.equal(groups[0].state, 'Empty')
    await admin.deleteGroups([groupId])
    await assert.rejects(admin.deleteGroups([groupId]))
    await admin.deleteTopics({ topics: [topic] })
    assert(!(await admin.listTopics()).includes(topic))
  }

  async close () {
    await Promise.allSettled(this.#open.map(each => each.disconnect()))
    await this.#admin.disconnect()
  }
}

class Member {
  records = []
  groupId
  #consumer
  #topic
  #owned = []

  constructor (consumer, groupId, topic) {
    this.#consumer = consumer
    this.groupId = groupId
    this.#topic = topic
  }

  async start () {
    this.#consumer.on(this.#consumer.events.GROUP_JOIN, ({ payload }) => {
      this.#owned = payload.memberAssignment[this.#topic] ?? []
    })
    await this.#consumer.connect()
    await this.#consumer.subscribe({ topics: [this.#topic], fromBeginning: true })
    await this.#consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        const read = { partition, offset: Number(message.offset), value: message.value.toString() }
        if (message.key) read.key = message.key.toString()
        const headers = Object.entries(message.headers).map(([name, each]) => [name, each.toString()])
        if (headers.length > 0) {
          read.headers = Object.fromEntries(headers)
          read.timestampMs = Number(message.timestamp)
        }
        this.records.push(read)
      },
    })
  }

  owned () {
    return this.#owned
  }

  async commit () {
    const ends = new Map(this.records.map(each => [each.partition, each.offset + 1]))
    await this.#consumer.commitOffsets(this.#owned.filter(each => ends.has(each)).map(partition => (
      { topic: this.#topic, partition, offset: String(ends.get(partition)) }
    )))
  }

  async leave () {
    await this.#consumer.disconnect()
  }
}

await main(Client.open)
