package domain

import (
	"slices"
	"strings"
)

// The kinds of groups whose consumer is the service itself.
const (
	ServiceWebhook = "webhook" // delivers to a webhook
	ServiceReplay  = "replay"  // delivers a range of events to a webhook again
	ServiceReactor = "reactor" // calls a function in Go
	ServiceChanges = "changes" // publishes the changes of a projection's documents
	ServiceEgress  = "egress"  // publishes to a message broker
)

// MaxGroupNameBytes limits the name of a group. The name of a service group is longer than others by its kind.
const MaxGroupNameBytes = MaxNameBytes + len(ServiceWebhook) + 1

var serviceKinds = []string{ServiceWebhook, ServiceReplay, ServiceReactor, ServiceChanges, ServiceEgress}

// ServiceGroup returns the name of a group whose consumer is the service itself. The name consists of the kind, one of
// the constants above, a dot, and the name of the webhook, reactor or other consumer. No other group has a dot in its
// name, so the names never collide.
func ServiceGroup(kind, name string) string { return kind + "." + name }

// ParseServiceGroup splits a service group's name; ok is false if the group's consumer is not the service.
func ParseServiceGroup(group string) (kind, name string, ok bool) {
	kind, name, ok = strings.Cut(group, ".")
	if !ok || !slices.Contains(serviceKinds, kind) {
		return "", "", false
	}
	return kind, name, true
}

// CheckGroupName returns an error unless name is valid for a group. Valid names are those that CheckName accepts, and
// those that ServiceGroup returns for a name that CheckProjectionName accepts, because some service groups are named
// after projections.
func CheckGroupName(where, name string) error {
	if _, of, ok := ParseServiceGroup(name); ok {
		return CheckProjectionName(where, of)
	}
	return CheckName(where, name)
}
