package config

import "time"

// Erasure configures the erasure of people's data.
type Erasure struct {
	Approval    bool          `yaml:"approval" env:"APPROVAL"`        // a second actor must approve each erasure
	BackupsKept time.Duration `yaml:"backupsKept" env:"BACKUPS_KEPT"` // how long backups are kept: receipts say until when they may hold the data
}

// check calls refuse for each setting that cannot work.
func (e Erasure) check(refuse func(setting, format string, args ...any)) {
	if e.BackupsKept < 0 {
		refuse("erasure.backupsKept", "%s is negative; write how long you keep backups, such as 720h, or 0s if there are none", e.BackupsKept)
	}
}
