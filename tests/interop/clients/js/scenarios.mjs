// The scenarios that every JavaScript client runs against one broker.  Each prints "ok NAME", or "failed NAME: why".
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

export const PATIENCE_MS = 30_000
const RECORDS = 300
// Within retention: what is older goes when it is looked at.
const TIMESTAMP_MS = Date.now() - 3_600_000

// How clients secure their connections: TEST_CA is the file of the authority that signs the broker's certificate (empty:
// no TLS), TEST_MECHANISM that of the login (empty: none) of TEST_USERNAME with TEST_PASSWORD.
const { TEST_CA, TEST_MECHANISM, TEST_USERNAME, TEST_PASSWORD } = process.env
export const tls = TEST_CA ? { ca: [readFileSync(TEST_CA, 'utf8')] } : undefined
export const login = TEST_MECHANISM
  ? { mechanism: TEST_MECHANISM, username: TEST_USERNAME, password: TEST_PASSWORD }
  : undefined

// Arguments: bootstrap, a prefix for names, and the scenarios.  `open(bootstrap)` gives a client: `codecs`,
// `createTopic`, `send`, `transact`, `join`, `committedOffsets`, `administer`, `close`.
export async function main (open) {
  const [bootstrap, prefix, ...names] = process.argv.slice(2)
  for (const name of names) {
    const client = await open(bootstrap)
    try {
      await within(SCENARIOS[name](client, prefix))
      console.log(`ok ${name}`)
    } catch (error) {
      console.log(`failed ${name}: ${String(error.message ?? error).replaceAll('\n', ' ')}`)
      console.error(error)
    }
    await client.close().catch(error => console.error(error))
  }
  // A member that did not leave must not keep the process alive.
  process.exit(0)
}

const SCENARIOS = {
  produce: (client, prefix) => roundTrip(client, `${prefix}-plain`, 'none'),
  compression,
  headers,
  'classic-group': (client, prefix) => group(client, prefix, 'classic'),
  'consumer-group': (client, prefix) => group(client, prefix, 'consumer'),
  transactions,
  admin: (client, prefix) => client.administer(`${prefix}-admin`),
}

function within (running) {
  const late = new Promise((_resolve, reject) => {
    setTimeout(() => reject(new Error(`not done within ${PATIENCE_MS} ms`)), PATIENCE_MS).unref()
  })
  return Promise.race([running, late])
}

export async function eventually (what, hasCome) {
  const giveUpMs = Date.now() + PATIENCE_MS - 1_000
  while (!(await hasCome())) {
    if (Date.now() > giveUpMs) throw new Error(`waited in vain for ${typeof what === 'function' ? what() : what}`)
    await sleep(20)
  }
}

function value (number) {
  return `value ${number}${' '.repeat(number % 50)}`
}

async function readAll (client, topic, count) {
  const member = await client.join(`${topic}-reader`, topic, 'classic')
  await eventually(() => `${count} records, there are ${member.records.length}`, () => member.records.length >= count)
  await member.leave()
  assert.equal(member.records.length, count)
  return member.records
}

async function roundTrip (client, topic, codec) {
  await client.createTopic(topic, 1)
  const sent = Array.from({ length: RECORDS }, (_, number) => ({ partition: 0, value: value(number) }))
  await client.send(topic, sent, codec)
  const read = await readAll(client, topic, RECORDS)
  read.forEach((record, number) => {
    assert.deepEqual([record.offset, record.value], [number, value(number)])
  })
}

async function compression (client, prefix) {
  for (const codec of client.codecs) await roundTrip(client, `${prefix}-${codec}`, codec)
}

async function headers (client, prefix) {
  const topic = `${prefix}-headers`
  await client.createTopic(topic, 1)
  const sent = { partition: 0, key: 'k', value: 'v', timestampMs: TIMESTAMP_MS, headers: { größe: 'ß', empty: '' } }
  await client.send(topic, [sent], 'none')
  const [record] = await readAll(client, topic, 1)
  assert.deepEqual({ ...record, offset: undefined }, { ...sent, offset: undefined })
}

// Three transactions of ten records: the second is aborted, the third has the position of a member that has read the first.
async function transactions (client, prefix) {
  const topic = `${prefix}-transactions`
  const groupId = `${prefix}-group-transactions`
  await client.createTopic(topic, 1)
  const batches = [0, 10, 20].map(start => (
    Array.from({ length: 10 }, (_, number) => ({ partition: 0, value: value(start + number) }))
  ))
  await client.transact(`${prefix}-id`, topic, batches[0], 'commit')
  await client.transact(`${prefix}-id`, topic, batches[1], 'abort')
  const member = await client.join(groupId, topic, 'classic')
  await eventually(() => `10 records, there are ${member.records.length}`, () => member.records.length === 10)
  await client.transact(`${prefix}-id`, topic, batches[2], 'commit', member)
  let committed
  await eventually(() => `the position, it is ${committed}`, async () => {
    committed = await client.committedOffsets(groupId, topic)
    return committed[0] === 10
  })
  await member.leave()
  const read = await readAll(client, topic, 20)
  assert.deepEqual(read.map(each => each.value), [...batches[0], ...batches[2]].map(each => each.value))
}

// Two members share four partitions and commit; one leaves, the other takes over.
async function group (client, prefix, protocol) {
  const topic = `${prefix}-${protocol}`
  const groupId = `${prefix}-group-${protocol}`
  await client.createTopic(topic, 4)
  const sent = Array.from({ length: RECORDS }, (_, number) => ({ partition: number % 4, value: value(number) }))
  await client.send(topic, sent, 'none')
  const first = await client.join(groupId, topic, protocol)
  await eventually('the first to own all', () => first.owned().length === 4)
  const second = await client.join(groupId, topic, protocol)
  const places = new Set()
  const look = () => {
    for (const record of [...first.records, ...second.records]) places.add(`${record.partition}/${record.offset}`)
    return `${first.owned()} and ${second.owned()}, ${places.size} records`
  }
  await eventually(look, () => {
    look()
    return first.owned().length === 2 && second.owned().length === 2 && places.size === RECORDS
  })
  assert.deepEqual([...first.owned(), ...second.owned()].sort(), [0, 1, 2, 3])
  let committed
  await eventually(() => `commits: ${committed}`, async () => {
    // A partition that has just changed its owner is refused, and committed the next time.
    await Promise.allSettled([first.commit(), second.commit()])
    committed = await client.committedOffsets(groupId, topic)
    return committed.reduce((sum, offset) => sum + Math.max(offset, 0), 0) === RECORDS
  })
  await second.leave()
  await eventually(() => `the first to take over, it owns ${first.owned()}`, () => first.owned().length === 4)
  await first.leave()
}
