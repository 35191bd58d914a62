// Package kafka publishes the messages of an egress to Kafka, as CloudEvents in the binary form of the Kafka protocol binding. The
// record's key is the message's, the tenant and the stream, so that a stream stays in one partition; its header manifold_message_id
// is the message's id.
package kafka
