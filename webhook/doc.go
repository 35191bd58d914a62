// Package webhook sends events to URLs.
//
// Webhooks is what the API asks for, and a source of consumers for package dispatch: each webhook that is not stopped is the
// consumer of its group, and so is each replay that is under way. A sender makes the requests, to public addresses alone; an
// endpoint is what this process has learned of a webhook's URL: how many requests it takes at once, and whether it answers at
// all. Nothing is shared by webhooks that one of them could use up: a dead one delays no other.
//
// An event is sent at least once, and each time with the same id. It is acknowledged when it was answered with a 2xx; else it
// comes again by a schedule that spans some days, and goes to the group's dead letters then.
package webhook
