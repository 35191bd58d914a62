// Package webhook sends events to URLs.
//
// Start with Webhooks. It serves the API's requests, and is a source of a consume.Dispatcher. Each webhook
// that is not stopped consumes its group, and so does each running replay. A sender makes the requests, to public
// addresses only. An endpoint is what this process has learned of a webhook's URL: how many requests it accepts at
// once, and whether it answers at all. Webhooks share nothing that one of them could exhaust, so a dead one delays no
// other.
//
// An event is sent at least once, each time with the same id. A 2xx response acknowledges it. Otherwise it is
// redelivered by a schedule that spans some days, and then becomes one of the group's dead letters.
package webhook
