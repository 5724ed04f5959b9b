// One franz-go client against one broker: each scenario prints "ok NAME", or "failed NAME: why".
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	patience = 30 * time.Second
	records  = 300
)

type scenarios struct {
	bootstrap, prefix string
	admin             *kadm.Client
}

// Arguments: bootstrap, a prefix for names, and the scenarios; or "sending" or "consuming" and its own.
func main() {
	if program, ok := map[string]func([]string) error{"sending": sending, "consuming": consuming}[os.Args[1]]; ok {
		if err := program(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	client, err := newClient(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer client.Close()
	s := &scenarios{os.Args[1], os.Args[2], kadm.NewClient(client)}
	known := map[string]func(context.Context) error{
		"produce":        s.produceAndConsume,
		"compression":    s.compression,
		"headers":        s.headers,
		"classic-group":  func(ctx context.Context) error { return s.group(ctx, "classic") },
		"consumer-group": func(ctx context.Context) error { return s.group(ctx, "consumer", kgo.ServerSideBalancer()) },
		"transactions":   s.transactions,
		"admin":          s.administer,
	}
	for _, name := range os.Args[3:] {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if err := known[name](ctx); err != nil {
			fmt.Printf("failed %s: %v\n", name, err)
		} else {
			fmt.Printf("ok %s\n", name)
		}
		cancel()
	}
}

func (s *scenarios) topic(ctx context.Context, name string, partitions int32) (string, error) {
	topic := s.prefix + "-" + name
	_, err := s.admin.CreateTopic(ctx, partitions, 1, nil, topic)
	return topic, err
}

func value(number int) []byte {
	return append([]byte(fmt.Sprintf("value %d", number)), bytes.Repeat([]byte(" "), number%50)...)
}

func (s *scenarios) send(ctx context.Context, topic string, codec kgo.CompressionCodec, count, partitions int) error {
	client, err := newClient(
		s.bootstrap, kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer client.Close()
	var sent []*kgo.Record
	for number := range count {
		sent = append(sent, &kgo.Record{Topic: topic, Partition: int32(number % partitions), Value: value(number)})
	}
	return client.ProduceSync(ctx, sent...).FirstErr()
}

func (s *scenarios) readAll(ctx context.Context, topic string, count int, more ...kgo.Opt) ([]*kgo.Record, error) {
	start := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	client, err := newClient(s.bootstrap, append(more, kgo.ConsumePartitions(start))...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var read []*kgo.Record
	for len(read) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("after %d records: %w", len(read), err)
		}
		read = append(read, fetches.Records()...)
	}
	if len(read) != count {
		return nil, fmt.Errorf("read %d of %d", len(read), count)
	}
	return read, nil
}

func (s *scenarios) roundTrip(ctx context.Context, name string, codec kgo.CompressionCodec) error {
	topic, err := s.topic(ctx, name, 1)
	if err != nil {
		return err
	}
	if err := s.send(ctx, topic, codec, records, 1); err != nil {
		return err
	}
	read, err := s.readAll(ctx, topic, records)
	if err != nil {
		return err
	}
	for number, record := range read {
		if record.Offset != int64(number) || !bytes.Equal(record.Value, value(number)) {
			return fmt.Errorf("another record at %d: %v", number, record)
		}
	}
	return nil
}

func (s *scenarios) produceAndConsume(ctx context.Context) error {
	return s.roundTrip(ctx, "plain", kgo.NoCompression())
}

func (s *scenarios) compression(ctx context.Context) error {
	codecs := map[string]kgo.CompressionCodec{
		"gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for name, codec := range codecs {
		if err := s.roundTrip(ctx, name, codec); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (s *scenarios) headers(ctx context.Context) error {
	topic, err := s.topic(ctx, "headers", 1)
	if err != nil {
		return err
	}
	client, err := newClient(s.bootstrap)
	if err != nil {
		return err
	}
	defer client.Close()
	sent := []kgo.RecordHeader{{Key: "größe", Value: []byte("ß")}, {Key: "empty", Value: []byte{}}, {Key: "größe", Value: []byte("2")}}
	record := &kgo.Record{Topic: topic, Key: []byte("k"), Headers: sent, Timestamp: time.UnixMilli(1_700_000_000_000)}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		return err
	}
	read, err := s.readAll(ctx, topic, 1)
	if err != nil {
		return err
	}
	if got := read[0]; got.Value != nil || string(got.Key) != "k" || got.Timestamp.UnixMilli() != 1_700_000_000_000 {
		return fmt.Errorf("another record: %v", got)
	}
	if fmt.Sprint(read[0].Headers) != fmt.Sprint(sent) {
		return fmt.Errorf("headers %v", read[0].Headers)
	}
	return nil
}

// A member of a group copies a topic in transactions with its offsets; the second one is aborted.
func (s *scenarios) transactions(ctx context.Context) error {
	input, err := s.topic(ctx, "transactions", 1)
	if err != nil {
		return err
	}
	output, err := s.topic(ctx, "transactions-out", 1)
	if err != nil {
		return err
	}
	if err := s.send(ctx, input, kgo.NoCompression(), records, 1); err != nil {
		return err
	}
	options, err := clientOptions(s.bootstrap,
		kgo.TransactionalID(s.prefix+"-id"), kgo.ConsumerGroup(s.prefix+"-group-transactions"), kgo.ConsumeTopics(input),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	session, err := kgo.NewGroupTransactSession(options...)
	if err != nil {
		return err
	}
	defer session.Close()
	for copied, number := 0, 0; copied < records; number++ {
		fetches := session.PollRecords(ctx, records/6)
		if err := fetches.Err(); err != nil {
			return err
		}
		if err := session.Begin(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: output, Value: record.Value}, nil)
		})
		// An abort seeks to the committed offsets.
		committed, err := session.End(ctx, kgo.TransactionEndTry(number != 1))
		if err != nil || committed != (number != 1) {
			return fmt.Errorf("transaction %d: committed %t, %w", number, committed, err)
		}
		if committed {
			copied += fetches.NumRecords()
		}
	}
	read, err := s.readAll(ctx, output, records, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return err
	}
	for number, record := range read {
		if !bytes.Equal(record.Value, value(number)) {
			return fmt.Errorf("another record at %d: %v", number, record)
		}
	}
	return nil
}

type member struct {
	client *kgo.Client
	owned  map[int32]bool
}

func (s *scenarios) join(group, topic string, more []kgo.Opt) (*member, error) {
	m := &member{owned: map[int32]bool{}}
	options := append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
			for _, partition := range given[topic] {
				m.owned[partition] = true
			}
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, taken map[string][]int32) {
			for _, partition := range taken[topic] {
				delete(m.owned, partition)
			}
		})}, more...)
	var err error
	m.client, err = newClient(s.bootstrap, options...)
	return m, err
}

func (m *member) poll(ctx context.Context, seen map[string]bool) {
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	m.client.PollFetches(short).EachRecord(func(record *kgo.Record) {
		seen[fmt.Sprintf("%d/%d", record.Partition, record.Offset)] = true
	})
	m.client.AllowRebalance()
}

func await(ctx context.Context, what string, hasCome func() bool) error {
	for !hasCome() {
		if ctx.Err() != nil {
			return fmt.Errorf("waited in vain for %s", what)
		}
	}
	return nil
}

// Two members share four partitions, commit; one leaves, the other takes over.
func (s *scenarios) group(ctx context.Context, protocol string, more ...kgo.Opt) error {
	topic, err := s.topic(ctx, protocol, 4)
	if err != nil {
		return err
	}
	if err := s.send(ctx, topic, kgo.NoCompression(), records, 4); err != nil {
		return err
	}
	group := s.prefix + "-group-" + protocol
	first, err := s.join(group, topic, more)
	if err != nil {
		return err
	}
	defer first.client.CloseAllowingRebalance()
	seen := map[string]bool{}
	if err := await(ctx, "the first to own all", func() bool { first.poll(ctx, seen); return len(first.owned) == 4 }); err != nil {
		return err
	}
	second, err := s.join(group, topic, more)
	if err != nil {
		return err
	}
	defer second.client.CloseAllowingRebalance()
	if err := await(ctx, "both to share all records", func() bool {
		first.poll(ctx, seen)
		second.poll(ctx, seen)
		return len(first.owned) == 2 && len(second.owned) == 2 && len(seen) == records
	}); err != nil {
		return fmt.Errorf("%w: %v and %v, %d records", err, first.owned, second.owned, len(seen))
	}
	if err := s.isOfKind(ctx, group, protocol); err != nil {
		return err
	}
	// A partition that changed its owner before a commit is read again by the new one.
	if err := await(ctx, "all records to be committed", func() bool {
		for _, each := range []*member{first, second} {
			each.poll(ctx, seen)
			if err := each.client.CommitUncommittedOffsets(ctx); err != nil {
				return false
			}
		}
		return s.committed(ctx, group) == records
	}); err != nil {
		return fmt.Errorf("%w: %d", err, s.committed(ctx, group))
	}
	second.client.CloseAllowingRebalance()
	if err := await(ctx, "the first to take over", func() bool { first.poll(ctx, seen); return len(first.owned) == 4 }); err != nil {
		return err
	}
	return nil
}

// The sum of a group's committed offsets, -1 when they cannot be had.
func (s *scenarios) committed(ctx context.Context, group string) int64 {
	committed, err := s.admin.FetchOffsets(ctx, group)
	if err != nil {
		return -1
	}
	var sum int64
	committed.Each(func(offset kadm.OffsetResponse) { sum += offset.At })
	return sum
}

// An administrator who asks about a group by the other protocol learns nothing of it.
func (s *scenarios) isOfKind(ctx context.Context, group, protocol string) error {
	if protocol == "classic" {
		described, err := s.admin.DescribeGroups(ctx, group)
		if err != nil || len(described[group].Members) != 2 {
			return fmt.Errorf("described as %v, %v", described, err)
		}
		return nil
	}
	described, err := s.admin.DescribeConsumerGroups(ctx, group)
	if err != nil || len(described[group].Members) != 2 {
		return fmt.Errorf("described as %v, %v", described, err)
	}
	return nil
}

func (s *scenarios) administer(ctx context.Context) error {
	topic, err := s.topic(ctx, "admin", 2)
	if err != nil {
		return err
	}
	setting := "1234567"
	if _, err := s.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &setting}}, topic); err != nil {
		return err
	}
	if _, err := s.admin.CreatePartitions(ctx, 1, topic); err != nil {
		return err
	}
	if err := await(ctx, "three partitions", func() bool {
		topics, err := s.admin.ListTopics(ctx, topic)
		return err == nil && len(topics[topic].Partitions) == 3
	}); err != nil {
		return err
	}
	if err := await(ctx, "the setting", func() bool {
		configs, err := s.admin.DescribeTopicConfigs(ctx, topic)
		if err != nil || len(configs) != 1 {
			return false
		}
		for _, config := range configs[0].Configs {
			if config.Key == "retention.ms" {
				return config.MaybeValue() == setting
			}
		}
		return false
	}); err != nil {
		return err
	}
	if err := s.send(ctx, topic, kgo.NoCompression(), 30, 3); err != nil {
		return err
	}
	deleted, err := s.admin.DeleteRecords(ctx, kadm.Offsets{topic: {1: {Topic: topic, Partition: 1, At: 4}}})
	if err != nil {
		return err
	}
	if low := deleted[topic][1].LowWatermark; low != 4 {
		return fmt.Errorf("low watermark %d", low)
	}
	starts, err := s.admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return err
	}
	if start := starts[topic][1].Offset; start != 4 {
		return fmt.Errorf("start %d", start)
	}
	group := s.prefix + "-group-admin"
	if err := s.admin.CommitAllOffsets(ctx, group, kadm.Offsets{topic: {1: {Topic: topic, Partition: 1, At: 7}}}); err != nil {
		return err
	}
	lags, err := s.admin.Lag(ctx, group)
	if err != nil {
		return err
	}
	if lag := lags[group].Lag[topic][1].Lag; lag != 3 {
		return fmt.Errorf("lag %d", lag)
	}
	if _, err := s.admin.DeleteGroups(ctx, group); err != nil {
		return err
	}
	if answers, _ := s.admin.DeleteGroups(ctx, group); !errors.Is(answers[group].Err, kerr.GroupIDNotFound) {
		return fmt.Errorf("deleted again: %v", answers[group].Err)
	}
	dirs, err := s.admin.DescribeAllLogDirs(ctx, kadm.TopicsSet{topic: {1: struct{}{}}})
	if err != nil {
		return err
	}
	found := 0
	dirs.Each(func(dir kadm.DescribedLogDir) { found += len(dir.Topics[topic]) })
	if found != 1 {
		return fmt.Errorf("%d partitions in the log directories", found)
	}
	_, err = s.admin.DeleteTopics(ctx, topic)
	return err
}
