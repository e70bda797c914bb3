package safe

// ReaperIdle tells whether nothing is left to be given back.
func ReaperIdle() bool {
	reaper.mu.Lock()
	defer reaper.mu.Unlock()
	return !reaper.running
}
