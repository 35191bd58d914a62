// Package egress publishes the events of logs to message brokers. Its subpackages support NATS JetStream and Kafka.
//
// Start with Egress and Broker. For each tenant, an Egress consumes a service group, whose checkpoint moves when the
// broker has acknowledged events. Events of a stream are published in order, and none is left out. After a crash or a
// failure, an event may be published again with the same id, so brokers and consumers can recognize it. One process at
// a time holds a tenant's group, as the only member of its only partition. After a failure it seeks back to the first
// event that the broker has not acknowledged. A new holder that finds work half done does the same.
//
// Messages are CloudEvents in binary content mode.
package egress
