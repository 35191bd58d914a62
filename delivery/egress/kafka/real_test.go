package kafka_test

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/manifold-es/manifold/delivery/egress/egresstest"
)

// realBroker is a Kafka that the test neither started nor kills.
type realBroker struct{ kafkaServer }

func (*realBroker) Kill(testing.TB)  {}
func (*realBroker) Start(testing.TB) {}

// The guarantees hold on the Kafka whose address is in MANIFOLD_TEST_KAFKA_BROKER, while processes are killed.
func TestRealBroker(t *testing.T) {
	t.Parallel()
	const variable = "MANIFOLD_TEST_KAFKA_BROKER"
	address := os.Getenv(variable)
	if address == "" {
		t.Skipf("NOT RUN: there is no real Kafka here; set %s to the address of a broker, such as 127.0.0.1:9092", variable)
	}
	s := &realBroker{kafkaServer{address: address, topic: "manifold-test-" + strings.ToLower(rand.Text()[:12]) + "-order"}}
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		t.Fatal(err)
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = s.topic, partitions, 1
	create.Topics = append(create.Topics, topic)
	created, err := create.RequestWith(t.Context(), client)
	if err == nil {
		err = kerr.ErrorForCode(created.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("create the topic: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		remove := kmsg.NewPtrDeleteTopicsRequest()
		remove.TopicNames = []string{s.topic}
		named := kmsg.NewDeleteTopicsRequestTopic()
		named.Topic = &s.topic
		remove.Topics = append(remove.Topics, named) // newer brokers read this field, older ones the other
		if _, err := remove.RequestWith(ctx, client); err != nil {
			t.Errorf("remove the topic: %v", err)
		}
		client.Close()
	})
	egresstest.TestKills(t, s)
}
