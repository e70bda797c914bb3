package admit

import (
	"sync/atomic"
	"time"
)

// OnWait is called, if it is not nil, after a wait of a goroutine for the GPU: with the name of the call, the time
// when it began, and the thread on which it began.
var OnWait atomic.Pointer[func(op string, begin time.Time, thread int)]
