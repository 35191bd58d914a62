package config

import "time"

// Retention configures the removal of events that a policy no longer keeps.
type Retention struct {
	// Grace is the minimum time that every event stays, whatever a policy says. When the answer to an append is lost,
	// the retry is recognised by its events' ids only while those events exist.
	Grace time.Duration `yaml:"grace" env:"GRACE"`
	Every time.Duration `yaml:"every" env:"EVERY"` // time between two runs of a policy
	// Share is the largest share of one database connection's time in which a process removes events.
	Share float64 `yaml:"share" env:"SHARE"`
}

// check calls refuse for each setting that cannot work.
func (r Retention) check(refuse func(setting, format string, args ...any)) {
	if r.Grace < 0 {
		refuse("retention.grace", "%s is negative; write 1m, or 0s to remove events as soon as a policy says so", r.Grace)
	}
	if r.Every < 100*time.Millisecond {
		refuse("retention.every", "%s is too short; the minimum is 100ms", r.Every)
	}
	if !(r.Share > 0 && r.Share <= 1) {
		refuse("retention.share", "%g is not a share of a connection's time; write 0.1, or 1 for all of it", r.Share)
	}
}
