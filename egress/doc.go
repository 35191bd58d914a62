// Package egress publishes the events of logs to message brokers: NATS JetStream and Kafka, in the packages below it.
//
// An egress is a service group for each tenant, whose checkpoint moves when the broker has acknowledged. Events of a stream go out
// in their order, and none is left out; one may be published again, after a crash or a failure, then with the same id, by which
// brokers and consumers know it. One process at a time holds a tenant's group: it is the only member of its only partition. After a
// failure it seeks back to the first event that the broker has not acknowledged, and so does a new holder that finds something
// half done.
//
// Messages are CloudEvents in the binary form of the broker's protocol.
package egress
