package kafka_test

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/manifold-es/manifold/delivery/egress"
	"github.com/manifold-es/manifold/delivery/egress/egresstest"
	"github.com/manifold-es/manifold/delivery/egress/kafka"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const partitions = 3 // of the topic

// kafkaServer is a fake Kafka broker that keeps records in a folder.
type kafkaServer struct {
	options []kfake.Opt
	running *kfake.Cluster
	address string
	topic   string
	login   []kgo.Opt // of the test's own connections to the server
}

// newServer starts a server with a topic "order" of three partitions. It runs until the test ends.
func newServer(t testing.TB, options ...kfake.Opt) *kafkaServer {
	t.Helper()
	s := &kafkaServer{topic: "order", options: append(options, kfake.NumBrokers(1), kfake.SeedTopics(partitions, "order"), kfake.DataDir(t.TempDir()), kfake.SyncWrites())}
	s.Start(t)
	t.Cleanup(func() { s.Kill(t) })
	s.address = s.running.ListenAddrs()[0]
	_, text, err := net.SplitHostPort(s.address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	s.options = append(s.options, kfake.Ports(port))
	return s
}

func (s *kafkaServer) Start(t testing.TB) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		var err error
		if s.running, err = kfake.NewCluster(s.options...); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		egresstest.Pause(t) // its port may not be free yet
	}
}

func (s *kafkaServer) Kill(testing.TB) { s.running.Close() }

func (s *kafkaServer) open(t testing.TB, change func(*kafka.Config)) egress.Broker {
	t.Helper()
	config := kafka.Config{Brokers: []string{s.address}, Name: "test", Timeout: 2 * time.Second}
	if change != nil {
		change(&config)
	}
	b, err := kafka.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (s *kafkaServer) Open(t testing.TB) egress.Broker { return s.open(t, nil) }

func (s *kafkaServer) Config() egress.Config {
	return egress.Config{Topic: strings.TrimSuffix(s.topic, "order") + "{category}", Alphabet: kafka.Alphabet}
}

// records returns all records of the topic, partition by partition, each in order.
func (s *kafkaServer) records(t testing.TB) []*kgo.Record {
	t.Helper()
	options := append([]kgo.Opt{kgo.SeedBrokers(s.address), kgo.ConsumeTopics(s.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}, s.login...)
	client, err := kgo.NewClient(options...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ask := kmsg.NewPtrListOffsetsRequest()
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = s.topic
	for number := range int32(partitions) {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = number, -1 // its end
		topic.Partitions = append(topic.Partitions, partition)
	}
	ask.Topics = append(ask.Topics, topic)
	answer, err := ask.RequestWith(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	left := make(map[int32]int64)
	for _, partition := range answer.Topics[0].Partitions {
		if partition.ErrorCode != 0 {
			t.Fatalf("partition %d: error %d", partition.Partition, partition.ErrorCode)
		}
		if partition.Offset > 0 {
			left[partition.Partition] = partition.Offset
		}
	}
	var all []*kgo.Record
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("the topic cannot be read: %v", left)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			all = append(all, r)
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return all
}

func (s *kafkaServer) Stored(t testing.TB) (all []egresstest.Stored) {
	t.Helper()
	for _, r := range s.records(t) {
		stored := egresstest.Stored{Topic: r.Topic, Attributes: make(map[string]string), Data: string(r.Value)}
		for _, header := range r.Headers {
			if header.Key == kafka.HeaderID {
				stored.ID = string(header.Value)
			}
			if attribute, ok := strings.CutPrefix(header.Key, "ce_"); ok {
				stored.Attributes[attribute] = string(header.Value)
			}
		}
		all = append(all, stored)
	}
	return all
}
