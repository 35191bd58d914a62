package fairshare

// Known returns how many tenants the budget has in memory.
func (b *Budget) Known() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.tenants)
}
