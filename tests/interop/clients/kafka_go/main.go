// kafka-go: arguments are bootstrap, a prefix for names, and the scenarios `produce` and `classic-group`.  Each prints
// "ok NAME", or "failed NAME: why".
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

const (
	records  = 300
	patience = 60 * time.Second
)

// The environment has the security: TEST_CA is the file of a CA, with which the connections are encrypted; TEST_MECHANISM,
// TEST_USERNAME and TEST_PASSWORD log in.
func security() (*tls.Config, sasl.Mechanism, error) {
	var encryption *tls.Config
	if path := os.Getenv("TEST_CA"); path != "" {
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		authorities := x509.NewCertPool()
		if !authorities.AppendCertsFromPEM(pem) {
			return nil, nil, fmt.Errorf("no certificate in %s", path)
		}
		encryption = &tls.Config{RootCAs: authorities}
	}
	username, password := os.Getenv("TEST_USERNAME"), os.Getenv("TEST_PASSWORD")
	switch mechanism := os.Getenv("TEST_MECHANISM"); mechanism {
	case "":
		return encryption, nil, nil
	case "PLAIN":
		return encryption, plain.Mechanism{Username: username, Password: password}, nil
	case "SCRAM-SHA-256":
		login, err := scram.Mechanism(scram.SHA256, username, password)
		return encryption, login, err
	case "SCRAM-SHA-512":
		login, err := scram.Mechanism(scram.SHA512, username, password)
		return encryption, login, err
	default:
		return nil, nil, fmt.Errorf("no mechanism %s", mechanism)
	}
}

func send(ctx context.Context, bootstrap, topic string) error {
	encryption, login, err := security()
	if err != nil {
		return err
	}
	writer := &kafka.Writer{
		Addr:                   kafka.TCP(bootstrap),
		Topic:                  topic,
		RequiredAcks:           kafka.RequireAll,
		BatchTimeout:           10 * time.Millisecond,
		AllowAutoTopicCreation: true,
		Transport:              &kafka.Transport{TLS: encryption, SASL: login},
	}
	defer writer.Close()
	messages := make([]kafka.Message, records)
	for index := range messages {
		messages[index] = kafka.Message{Value: fmt.Appendf(nil, "%d", index)}
	}
	for {
		err = writer.WriteMessages(ctx, messages...)
		// The topic that the first request creates has no leader yet.
		if !errors.Is(err, kafka.UnknownTopicOrPartition) || ctx.Err() != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func read(ctx context.Context, bootstrap, topic, group string) error {
	encryption, login, err := security()
	if err != nil {
		return err
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:     []string{bootstrap},
		Topic:       topic,
		GroupID:     group,
		StartOffset: kafka.FirstOffset,
		MaxWait:     100 * time.Millisecond,
		Dialer:      &kafka.Dialer{TLS: encryption, SASLMechanism: login, DualStack: true, Timeout: patience},
	})
	defer reader.Close()
	seen := map[string]bool{}
	for len(seen) < records {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return fmt.Errorf("%d of %d came: %w", len(seen), records, err)
		}
		seen[string(message.Value)] = true
	}
	return nil
}

func run(bootstrap, prefix, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	topic := fmt.Sprintf("%s-%s", prefix, name)
	if err := send(ctx, bootstrap, topic); err != nil {
		return err
	}
	if name == "produce" {
		return nil
	}
	return read(ctx, bootstrap, topic, topic+"-group")
}

func main() {
	for _, name := range os.Args[3:] {
		if err := run(os.Args[1], os.Args[2], name); err != nil {
			fmt.Printf("failed %s: %v\n", name, err)
			continue
		}
		fmt.Printf("ok %s\n", name)
	}
}
