// The program: announces paid orders.
export async function pay (kafka, topic, order) {
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic, messages: [{ key: order, value: JSON.stringify({ order, state: 'paid' }) }] })
  await producer.disconnect()
}
