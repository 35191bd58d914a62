// Package kafka publishes the messages of an egress to Kafka, as CloudEvents in the binary content mode of the Kafka
// protocol binding. A record's key is the message's key, the tenant and the stream, so a stream stays in one partition.
// The header manifold_message_id is the message's id.
package kafka
