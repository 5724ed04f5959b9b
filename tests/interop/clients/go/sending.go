package main

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

const clockMonotonic = 1

func sendingPause() (time.Duration, error) {
	text := os.Getenv("OTTLA_TEST_SEND_PAUSE_MS")
	if text == "" {
		text = "10"
	}
	pauseMs, err := strconv.Atoi(text)
	return time.Duration(pauseMs) * time.Millisecond, err
}

// The machine's monotonic clock, as the other programs have it.
func nowNs() int64 {
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

// Sends numbered records through the idempotent producer until SIGTERM, and writes down what became of each: the lines
// of tests/history/operations.py.  Arguments: name, bootstrap, topic, count of partitions, file.
func sending(arguments []string) error {
	name, topic := arguments[0], arguments[2]
	partitions, err := strconv.Atoi(arguments[3])
	if err != nil {
		return err
	}
	pause, err := sendingPause()
	if err != nil {
		return err
	}
	stopping := make(chan os.Signal, 1)
	signal.Notify(stopping, syscall.SIGTERM)
	history, err := os.Create(arguments[4])
	if err != nil {
		return err
	}
	defer history.Close()
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(arguments[1], ",")...), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(2*time.Millisecond),
		kgo.RecordDeliveryTimeout(60*time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	var mutex sync.Mutex
	line := func(invoked, completed int64, outcome string, partition int32, value string, offset int64) {
		mutex.Lock()
		defer mutex.Unlock()
		fmt.Fprintf(history, "[\"Send\", %q, %d, %d, %q, %d, %q, %d]\n",
			name, invoked, completed, outcome, partition, value, offset)
	}
	seed := fnv.New64()
	seed.Write([]byte(name))
	random := rand.New(rand.NewSource(int64(seed.Sum64())))
	for number := 0; ; {
		for left := 1 + random.Intn(7); left > 0; left-- {
			value := fmt.Sprintf("%s:%d", name, number)
			number++
			record := &kgo.Record{Topic: topic, Partition: int32(random.Intn(partitions)), Value: []byte(value)}
			invoked := nowNs()
			line(invoked, invoked, "unknown", record.Partition, value, -1)
			client.Produce(context.Background(), record, func(record *kgo.Record, err error) {
				if err == nil {
					line(invoked, nowNs(), "ok", record.Partition, value, record.Offset)
				} else {
					line(invoked, nowNs(), "unknown", record.Partition, value, -1)
				}
			})
		}
		select {
		case <-stopping:
			ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
			defer cancel()
			return client.Flush(ctx)
		case <-time.After(pause):
		}
	}
}
