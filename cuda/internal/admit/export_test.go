package admit

// Inside returns how many calls are inside.
func (b *Limiter) Inside() int32 { return b.inside.Load() }

// Join adds a call to the queue: see join.
func (b *Limiter) Join() (turn chan struct{}) { return b.join() }
