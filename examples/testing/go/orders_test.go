package orders

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The broker has it: ottla testing run --topic orders:3 -- go test
const topic = "orders"

func connect(t *testing.T, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	addresses := strings.Split(os.Getenv("KAFKA_BOOTSTRAP_SERVERS"), ",")
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(addresses...))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func TestPaidOrderIsAnnounced(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := Pay(ctx, connect(t), topic, "7"); err != nil {
		t.Fatal(err)
	}

	consumer := connect(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	fetches := consumer.PollFetches(ctx)
	if err := fetches.Err(); err != nil {
		t.Fatal(err)
	}
	record := fetches.Records()[0]
	if key, value := string(record.Key), string(record.Value); key != "7" || value != `{"order": "7", "state": "paid"}` {
		t.Fatalf("%s: %s", key, value)
	}
}
