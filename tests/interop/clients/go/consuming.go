package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"hash/fnv"
	"math/rand"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	pollFor       = 200 * time.Millisecond
	pollMax       = 500
	commitShare   = 0.5
	commitsWithin = 60 * time.Second
	// The library tries a request of a classic group for this long: it must outlast the change of the coordinator.
	sessionTimeout = 10 * time.Second
)

// What a commit answers that came too late: it did not happen.
var refused = []error{
	kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.RebalanceInProgress, kerr.FencedInstanceID,
	kerr.StaleMemberEpoch, kerr.FencedMemberEpoch,
}

type recordedMember struct {
	name, topic, group string
	tellsGeneration    bool
	history            *os.File
	client             *kgo.Client
	random             *rand.Rand
	// Callbacks run beside the polls, though never while one is worked on.
	mutex      sync.Mutex
	newlyGiven map[int32]bool
	// What a commit would say: the offset behind what was read.
	next map[int32]kgo.EpochOffset
	// What a callback could not return.
	problem error
}

// A member of a group until SIGTERM, which writes down what it is given, reads and commits: the lines of
// tests/history/operations.py.  Arguments: name, bootstrap, topic, group, protocol, file.  Any error but that of a
// commit which came too late ends it.
func consuming(arguments []string) error {
	protocol := arguments[4]
	stopping := make(chan os.Signal, 1)
	signal.Notify(stopping, syscall.SIGTERM)
	history, err := os.Create(arguments[5])
	if err != nil {
		return err
	}
	defer history.Close()
	seed := fnv.New64()
	seed.Write([]byte(arguments[0]))
	m := &recordedMember{
		name: arguments[0], topic: arguments[2], group: arguments[3], history: history,
		// An epoch of the newer protocol is the member's own, not that of its assignment.
		tellsGeneration: protocol != "consumer",
		random:          rand.New(rand.NewSource(int64(seed.Sum64()))),
		newlyGiven:      map[int32]bool{}, next: map[int32]kgo.EpochOffset{},
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(arguments[1], ",")...), kgo.ConsumerGroup(m.group), kgo.ConsumeTopics(m.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, client *kgo.Client, given map[string][]int32) {
			m.given(client, given[m.topic])
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, client *kgo.Client, taken map[string][]int32) {
			m.taken(client, taken[m.topic])
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
			m.lost(lost[m.topic])
		}),
	}
	switch protocol {
	case "range":
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	case "cooperative-sticky":
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	case "consumer":
		options = append(options, kgo.ServerSideBalancer())
	default:
		return fmt.Errorf("no protocol %s", protocol)
	}
	if protocol != "consumer" {
		options = append(options, kgo.SessionTimeout(sessionTimeout), kgo.HeartbeatInterval(500*time.Millisecond))
	}
	m.client, err = kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer m.client.CloseAllowingRebalance()
	for {
		select {
		case <-stopping:
			return nil
		default:
			err := m.step()
			m.client.AllowRebalance()
			if err != nil {
				return err
			}
		}
	}
}

func (m *recordedMember) step() error {
	ctx, cancel := context.WithTimeout(context.Background(), pollFor)
	defer cancel()
	invoked := nowNs()
	fetches := m.client.PollRecords(ctx, pollMax)
	completed := nowNs()
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.problem != nil {
		return m.problem
	}
	for _, failed := range fetches.Errors() {
		// Told for information: the client goes on joining by itself, as while a killed coordinator is away.
		var leftOut *kgo.ErrGroupSession
		if !errors.Is(failed.Err, context.DeadlineExceeded) && !errors.As(failed.Err, &leftOut) {
			return fmt.Errorf("poll of partition %d: %w", failed.Partition, failed.Err)
		}
	}
	fetches.EachPartition(func(fetched kgo.FetchTopicPartition) { m.read(fetched, invoked, completed) })
	if err := m.readCommitted(); err != nil {
		return err
	}
	if m.random.Float64() < commitShare {
		for partition := range m.next {
			if err := m.commit(m.client, partition); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *recordedMember) read(fetched kgo.FetchTopicPartition, invoked, completed int64) {
	if len(fetched.Records) == 0 {
		return
	}
	var read []string
	for _, record := range fetched.Records {
		read = append(read, fmt.Sprintf("[%d, %q]", record.Offset, record.Value))
		m.next[record.Partition] = kgo.EpochOffset{Epoch: record.LeaderEpoch, Offset: record.Offset + 1}
	}
	m.line("Poll", "%d, %d, %d, [%s]", invoked, completed, fetched.Partition, strings.Join(read, ", "))
	m.line("Watermark", "%d, %d, %d, %d", invoked, completed, fetched.Partition, fetched.HighWatermark)
}

func (m *recordedMember) readCommitted() error {
	if len(m.newlyGiven) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitsWithin)
	defer cancel()
	admin := kadm.NewClient(m.client)
	invoked := nowNs()
	committed, err := admin.FetchOffsets(ctx, m.group)
	for err != nil && ctx.Err() == nil {
		// A coordinator that was killed refuses connections until the group has another one.
		time.Sleep(100 * time.Millisecond)
		invoked = nowNs()
		committed, err = admin.FetchOffsets(ctx, m.group)
	}
	if err != nil {
		return fmt.Errorf("committed offsets: %w", err)
	}
	completed := nowNs()
	for partition := range m.newlyGiven {
		offset := int64(-1)
		if found, ok := committed.Lookup(m.topic, partition); ok {
			if found.Err != nil {
				return fmt.Errorf("committed offset of partition %d: %w", partition, found.Err)
			}
			offset = found.At
		}
		m.line("Committed", "%d, %d, %d, %d", invoked, completed, partition, offset)
	}
	clear(m.newlyGiven)
	return nil
}

func (m *recordedMember) commit(client *kgo.Client, partition int32) error {
	next, ok := m.next[partition]
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitsWithin)
	defer cancel()
	var problem error
	invoked := nowNs()
	wanted := map[string]map[int32]kgo.EpochOffset{m.topic: {partition: next}}
	client.CommitOffsetsSync(ctx, wanted, func(
		_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
		problem = err
		if err == nil {
			problem = kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode)
		}
	})
	outcome, err := outcomeOf(problem)
	if err != nil {
		return fmt.Errorf("commit of partition %d: %w", partition, err)
	}
	m.line("Commit", "%d, %d, %q, %d, %d", invoked, nowNs(), outcome, partition, next.Offset)
	return nil
}

func outcomeOf(problem error) (string, error) {
	if problem == nil {
		return "ok", nil
	}
	for _, late := range refused {
		if errors.Is(problem, late) {
			return "failed", nil
		}
	}
	// Never sent: the coordinator was killed a moment ago, and the client gives up after a few refused connections.
	var dialled *net.OpError
	if errors.As(problem, &dialled) && dialled.Op == "dial" {
		return "failed", nil
	}
	return "", problem
}

func (m *recordedMember) given(client *kgo.Client, given []int32) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	generation := int32(-1)
	if m.tellsGeneration {
		_, generation = client.GroupMetadata()
	}
	for _, partition := range given {
		m.line("Positioned", "%d, %d, %d", nowNs(), partition, generation)
		m.newlyGiven[partition] = true
	}
}

// These partitions are to be given up: what was read of them is committed first.
func (m *recordedMember) taken(client *kgo.Client, taken []int32) {
	m.mutex.Lock()
	for _, partition := range taken {
		if err := m.commit(client, partition); err != nil {
			m.problem = err
		}
	}
	m.mutex.Unlock()
	m.lost(taken)
}

func (m *recordedMember) lost(lost []int32) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, partition := range lost {
		m.line("Revoked", "%d, %d", nowNs(), partition)
		delete(m.next, partition)
		delete(m.newlyGiven, partition)
	}
}

func (m *recordedMember) line(kind, format string, values ...any) {
	fmt.Fprintf(m.history, "[%q, %q, %s]\n", kind, m.name, fmt.Sprintf(format, values...))
}
