// kafkajs behind lines of JSON: see driven.py for the words, test_kafkajs.py for the tests.
//
//   node kafkajs_driver.mjs MODULES/ serve ADDRESS
//   node kafkajs_driver.mjs MODULES/ member ADDRESS TOPIC GROUP NAME SESSION_MS HEARTBEAT_MS [COMMIT_MS]
//
// A member with COMMIT_MS commits by itself, so often; others are told to.
// MODULES/ is the folder whose node_modules holds kafkajs; stdout is for the protocol alone.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const [modules, mode, address, ...rest] = process.argv.slice(2);
const require = createRequire(modules);
const { Kafka, CompressionCodecs, CompressionTypes, ConfigResourceTypes, logLevel } =
  require('kafkajs');

const lz4 = require('lz4-napi');
const zstd = await new Promise((resolve) => require('zstd-codec').ZstdCodec.run(resolve));

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy');
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: (buffer) => lz4.decompressFrame(buffer),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(new zstd.Simple().compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(new zstd.Simple().decompress(buffer)),
});

const COMPRESSION = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};
const TOPIC_ALREADY_EXISTS = 36;
const CONFIG_OF_THE_TOPIC = 1;

// How to get in, as access.py writes it; files are PEM.
function access(text) {
  if (!text) return {};
  const { protocol, ca, identity, mechanism, user, password, token } = JSON.parse(text);
  const settings = { retry: { initialRetryTime: 50, retries: 2 } }; // no broker restarts here
  if (protocol.endsWith('SSL')) {
    settings.ssl = { ca: [readFileSync(ca)] };
    if (identity) {
      settings.ssl.key = readFileSync(identity);
      settings.ssl.cert = readFileSync(identity);
    }
  }
  if (protocol.startsWith('SASL')) {
    settings.sasl = { mechanism: mechanism.toLowerCase(), username: user, password };
    if (mechanism === 'OAUTHBEARER') {
      settings.sasl = { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: token }) };
    }
  }
  return settings;
}

const kafka = new Kafka({
  clientId: rest[2] ?? 'driver',
  brokers: address.split(','),
  logLevel: logLevel.WARN, // warnings and errors go to stderr
  retry: { initialRetryTime: 50, maxRetryTime: 500, retries: 60 }, // a broker that restarts
  ...access(process.env.KAFKA_ACCESS),
});

const say = (event) =>
  process.stdout.write(`${JSON.stringify({ at: Date.now(), ...event })}\n`);
const encode = (data) => (data === null ? null : Buffer.from(data).toString('base64'));
const decode = (text) => (text === null ? null : Buffer.from(text, 'base64'));

// --- records ------------------------------------------------------------------------------------

function messageOf([key, value, headers, timestamp], partition) {
  const named = {};
  for (const [name, text] of headers) named[name] = decode(text);
  const message = { key: decode(key), value: decode(value), headers: named, partition };
  return timestamp === null ? message : { ...message, timestamp: String(timestamp) };
}

function rowOf({ key, value, headers, timestamp }) {
  const pairs = [];
  for (const [name, found] of Object.entries(headers ?? {})) {
    for (const one of Array.isArray(found) ? found : [found]) pairs.push([name, encode(one)]);
  }
  return [encode(key), encode(value), pairs, Number(timestamp)];
}

// --- serve --------------------------------------------------------------------------------------

const admin = kafka.admin({ retry: { initialRetryTime: 50, retries: 3 } });
let producer = null;

async function produce({ topic, codec, records }) {
  if (producer === null) {
    producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
    await producer.connect();
  }
  const [described] = (await admin.fetchTopicMetadata({ topics: [topic] })).topics;
  const count = described.partitions.length;
  const messages = records.map((row, index) => messageOf(row, index % count));
  const sent = await producer.send({ topic, messages, compression: COMPRESSION[codec] });
  const next = new Map(sent.map((batch) => [batch.partition, Number(batch.baseOffset)]));
  return messages.map(({ partition }) => {
    const offset = next.get(partition);
    next.set(partition, offset + 1);
    return [partition, offset];
  });
}

async function describeConfigs(topic) {
  const resources = [{ type: ConfigResourceTypes.TOPIC, name: topic }];
  const described = await admin.describeConfigs({ resources, includeSynonyms: false });
  return described.resources[0].configEntries;
}

async function withTransactions(transactionalId, action) {
  const options = { transactionalId, idempotent: true, maxInFlightRequests: 1 };
  const transactional = kafka.producer({ ...options, retry: { retries: 10 } });
  try {
    await transactional.connect();
    await action(transactional);
  } finally {
    await transactional.disconnect();
  }
}

// Consumes what is committed and produces it again, marked; every transaction is aborted once
// before it is committed.
async function copy(transactional, { source, target, group, count }) {
  const consumer = kafka.consumer({ groupId: group, maxWaitTimeInMs: 100 });
  let copied = 0;
  const eachBatch = async ({ batch, resolveOffset }) => {
    const messages = batch.messages.map(({ value }) => ({ value: `${value}!` }));
    const partitions = [{ partition: batch.partition, offset: `${Number(batch.lastOffset()) + 1}` }];
    for (const commit of [false, true]) {
      const transaction = await transactional.transaction();
      await transaction.send({ topic: target, messages });
      const topics = [{ topic: source, partitions }];
      await transaction.sendOffsets({ consumerGroupId: group, topics });
      await (commit ? transaction.commit() : transaction.abort());
    }
    resolveOffset(batch.lastOffset());
    copied += messages.length;
  };
  await consumer.connect();
  try {
    await consumer.subscribe({ topics: [source], fromBeginning: true });
    const done = new Promise((resolve, reject) => {
      consumer.on(consumer.events.END_BATCH_PROCESS, () => copied >= count && resolve());
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
    });
    await consumer.run({ autoCommit: false, eachBatchAutoResolve: false, eachBatch });
    await done;
  } finally {
    await consumer.disconnect();
  }
}

const calls = {
  produce,
  transact: ({ topic, name, values, commit }) => withTransactions(name, async (transactional) => {
    const transaction = await transactional.transaction();
    await transaction.send({ topic, messages: values.map((value) => ({ value })) });
    await (commit ? transaction.commit() : transaction.abort());
  }),
  copy: (wanted) => withTransactions(wanted.name, (transactional) => copy(transactional, wanted)),
  zombie: ({ topic, name }) => withTransactions(name, async (old) => {
    const late = await old.transaction();
    await late.send({ topic, messages: [{ value: 'old' }] });
    await calls.transact({ topic, name, values: ['new'], commit: true });
    await late.send({ topic, messages: [{ value: 'late' }] });
    await late.commit();
  }),
  async create_topic({ topic, partitions, configs }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }));
    const wanted = { topic, numPartitions: partitions, replicationFactor: 1, configEntries };
    const made = await admin.createTopics({ topics: [wanted] });
    if (!made) throw Object.assign(new Error('exists'), { code: TOPIC_ALREADY_EXISTS });
  },
  async partitions({ topic }) {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
    return topics[0].partitions.map((p) => [p.partitionId, p.leader, p.replicas, p.isr]);
  },
  topics: () => admin.listTopics(),
  add_partitions: ({ topic, total }) =>
    admin.createPartitions({ topicPartitions: [{ topic, count: total }] }),
  delete_topic: ({ topic }) => admin.deleteTopics({ topics: [topic] }),
  async configs({ topic }) {
    return (await describeConfigs(topic)).map((entry) => [entry.configName, entry.configValue]);
  },
  async set_config({ topic, name, value }) {
    // The old AlterConfigs, all that kafkajs has, resets what it does not name.
    const own = (await describeConfigs(topic)).filter(
      (entry) => entry.configSource === CONFIG_OF_THE_TOPIC && entry.configName !== name,
    );
    const kept = own.map((entry) => ({ name: entry.configName, value: entry.configValue }));
    const configEntries = [...kept, { name, value }];
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic, configEntries };
    await admin.alterConfigs({ resources: [resource] });
  },
  async groups() {
    return (await admin.listGroups()).groups.map((group) => group.groupId);
  },
  async group({ group }) {
    const [described] = (await admin.describeGroups([group])).groups;
    return [described.state, described.members.length];
  },
  delete_group: ({ group }) => admin.deleteGroups([group]),
  async committed({ group, topic }) {
    const [found] = await admin.fetchOffsets({ groupId: group, topics: [topic] });
    return found.partitions
      .map(({ partition, offset }) => [partition, Number(offset)])
      .filter(([, offset]) => offset >= 0);
  },
  async offsets({ topic, at }) {
    if (at >= 0) {
      const found = await admin.fetchTopicOffsetsByTimestamp(topic, at);
      return found.map(({ partition, offset }) => [partition, Number(offset)]);
    }
    const found = await admin.fetchTopicOffsets(topic);
    return found.map(({ partition, high, low }) => [partition, Number(at === -1 ? high : low)]);
  },
  async delete_records({ topic, before }) {
    const partitions = before.map(([partition, offset]) => ({ partition, offset: String(offset) }));
    await admin.deleteTopicRecords({ topic, partitions });
    const starts = await calls.offsets({ topic, at: -2 });
    const asked = new Set(before.map(([partition]) => partition));
    return starts.filter(([partition]) => asked.has(partition));
  },
};

function codeOf(error) {
  const inner = [error.cause, error.originalError, ...(error.errors ?? [])];
  for (const partition of error.partitions ?? []) inner.push(partition.error);
  for (const group of error.groups ?? []) inner.push(group.error);
  if (Number.isInteger(error.code)) return error.code;
  for (const found of inner) {
    const code = found && codeOf(found);
    if (code) return code;
  }
  return 0;
}

async function serve() {
  await admin.connect();
  for await (const line of createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    try {
      say({ result: (await calls[request.call](request.with)) ?? null });
    } catch (error) {
      const code = codeOf(error);
      say(code ? { code, text: error.message } : { failure: error.stack });
    }
  }
  await admin.disconnect();
  if (producer !== null) await producer.disconnect();
}

// --- member -------------------------------------------------------------------------------------

// A connection that is closed fails its requests, and kafkajs waits for not all of them: what it
// waits for it tries again. Node would end the process for the others.
process.on('unhandledRejection', (error) => {
  if (error.name !== 'KafkaJSConnectionClosedError') throw error;
  console.error(error.message);
});

async function member(topic, groupId, name, sessionTimeout, heartbeatInterval, commitInterval) {
  const consumer = kafka.consumer({
    groupId,
    sessionTimeout: Number(sessionTimeout),
    heartbeatInterval: Number(heartbeatInterval),
    maxWaitTimeInMs: 100,
  });
  const positions = new Map();
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    positions.clear(); // what others may have read since is not ours to commit
    say({ assigned: payload.memberAssignment[topic] ?? [] });
  });
  consumer.on(consumer.events.REBALANCING, () => say({ assigned: [] }));
  // One that the coordinator has forgotten joins again without that event. It reads nothing from
  // its request on; the event comes with the answer.
  consumer.on(consumer.events.REQUEST, ({ payload }) => {
    if (payload.apiName === 'JoinGroup') say({ assigned: [], at: payload.sentAt });
  });
  const eachBatch = async ({ batch, isRunning, isStale }) => {
    if (!isRunning() || isStale()) return;
    positions.set(batch.partition, Number(batch.lastOffset()) + 1);
    say({ records: batch.messages.map((m) => [batch.partition, Number(m.offset), rowOf(m)]) });
  };
  const start = async () => {
    await consumer.connect();
    await consumer.subscribe({ topics: [topic], fromBeginning: true });
    const commits = commitInterval
      ? { autoCommit: true, autoCommitInterval: Number(commitInterval) }
      : { autoCommit: false };
    await consumer.run({ ...commits, eachBatch });
  };
  // It gives up when it finds no coordinator, as while a broker stops, and joins again: by itself, or
  // when it is started again. It reads nothing meanwhile.
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    say({ assigned: [] });
    if (payload.restart) return;
    start().catch((error) => say({ failure: error.stack }));
  });
  await start();
  for await (const command of createInterface({ input: process.stdin })) {
    if (command === 'commit') {
      const offsets = [...positions].map(([partition, next]) => ({
        topic,
        partition,
        offset: String(next),
      }));
      if (offsets.length > 0) await consumer.commitOffsets(offsets);
    } else {
      await consumer.disconnect();
    }
    say({ done: command });
    if (command === 'leave') break;
  }
}

await (mode === 'serve' ? serve() : member(...rest));
process.exit(0);
