package subjects

import "time"

// SetTurn changes after which time other tenants have their turn.
func (c *Config) SetTurn(turn time.Duration) { c.turn = turn }
