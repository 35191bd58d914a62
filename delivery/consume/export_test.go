package consume

// Known returns how many tenants the dispatcher has in memory.
func (d *Dispatcher) Known() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.tenants)
}
