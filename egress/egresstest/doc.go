// Package egresstest is the specification of an egress.Broker: what holds for each of them, with the service and the broker
// killed in between. It is for tests alone.
package egresstest
