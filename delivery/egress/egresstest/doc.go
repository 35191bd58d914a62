// Package egresstest is the specification of an egress.Broker. Its tests check the guarantees that every broker must
// keep while the service and the broker are killed. It is only for tests.
package egresstest
