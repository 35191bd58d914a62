// Package nats publishes the messages of an egress to NATS JetStream, as CloudEvents in the binary content mode of the
// NATS protocol binding. A message's id is its Nats-Msg-Id. JetStream uses it to drop duplicates within its duplicate
// window.
package nats
