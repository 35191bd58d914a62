// Package report appends events about a tenant's dead letters and parked documents to its log, and about alerts: what
// has stopped, fails or lags. These reports can be followed, delivered by groups and sent to webhooks like all other
// events. A tenant enables them. Start with Reporter, which is a source of a consume.Dispatcher, and Postgres, which
// owns the settings and the alerts.
//
// What is to be reported is in rows of other packages. The Reporter looks at these rows, appends an event for each that
// was not reported yet, and then marks the row (docs/decisions/0089-reports-from-rows.md).
package report
