// Package nats publishes the messages of an egress to NATS JetStream, as CloudEvents in the binary form of the NATS protocol
// binding. A message's id is its Nats-Msg-Id, by which JetStream leaves out what it has already, within its duplicate window.
package nats
