// Package orders is the program: it announces paid orders.
package orders

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Pay announces that an order is paid.
func Pay(ctx context.Context, client *kgo.Client, topic, order string) error {
	value := fmt.Sprintf(`{"order": %q, "state": "paid"}`, order)
	record := &kgo.Record{Topic: topic, Key: []byte(order), Value: []byte(value)}
	return client.ProduceSync(ctx, record).FirstErr()
}
