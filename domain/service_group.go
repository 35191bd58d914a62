package domain

import (
	"slices"
	"strings"
)

// The kinds of groups whose consumer is the service itself.
const (
	ServiceWebhook = "webhook" // delivers to a webhook
	ServiceReplay  = "replay"  // delivers a range of events to a webhook once more
	ServiceReactor = "reactor" // calls a function in Go
	ServiceChanges = "changes" // publishes the changes of a projection's documents
	ServiceEgress  = "egress"  // publishes to a message broker
)

// MaxGroupNameBytes is what the name of a group has at most: that of a service group is longer by its kind.
const MaxGroupNameBytes = MaxNameBytes + len(ServiceWebhook) + 1

var serviceKinds = []string{ServiceWebhook, ServiceReplay, ServiceReactor, ServiceChanges, ServiceEgress}

// ServiceGroup is the name of the group with which the service does something itself: its kind, one of the constants, a dot,
// and the name of what it does. No other group has a name with a dot, so they never meet.
func ServiceGroup(kind, name string) string { return kind + "." + name }

// ParseServiceGroup takes a group's name apart; ok is false where the group's consumer is not the service.
func ParseServiceGroup(group string) (kind, name string, ok bool) {
	kind, name, ok = strings.Cut(group, ".")
	if !ok || !slices.Contains(serviceKinds, kind) {
		return "", "", false
	}
	return kind, name, true
}

// CheckGroupName reports what is wrong with the name of a group: as CheckName, or one that ServiceGroup gives, of a name that
// CheckProjectionName accepts, since that is what some service groups are named after.
func CheckGroupName(where, name string) error {
	if _, of, ok := ParseServiceGroup(name); ok {
		return CheckProjectionName(where, of)
	}
	return CheckName(where, name)
}
