//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package collective

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBlockedHoldsUp: a first operation that waits in NCCL for another rank holds up nothing but its stream and its
// communicator.
func TestBlockedHoldsUp(t *testing.T) {
	needsDouble(t)
	simulated, err := sim.Attach(os.Getenv("CUDABIND_SIM"))
	require.NoError(t, err)
	w := newWorld(t)
	b := filled(t, w, 4, func(int, int) int32 { return 1 })
	done := make(chan error)
	go func() { done <- Broadcast(w.comms[0], w.streams[0], b[0], 0) }()
	for told.get(&told.Waiting) == 0 {
		runtime.Gosched()
	}
	from := time.Now()
	for _, x := range w.contexts { // the communicator's own device, and another
		s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
		require.NoError(t, err)
		v, err := safe.NewBuffer[int32](x, 4)
		require.NoError(t, err)
		e, err := s.CaptureExecutable(func() error { return v.FillAsync(s, 7) })
		require.NoError(t, err)
		require.NoError(t, e.Launch(s))
		require.NoError(t, s.Synchronize())
		assert.EqualValues(t, 7, contents(t, v)[3])
		destroyed := simulated.Calls("cuGraphExecDestroy")
		require.NoError(t, errors.Join(e.Close(), v.Close(), s.Close()))
		assert.Eventually(t, func() bool { return simulated.Calls("cuGraphExecDestroy") > destroyed }, time.Minute, time.Millisecond, "on %v", x.Device())
		alone, err := Open(soon(t), x)
		require.NoError(t, err)
		require.NoError(t, alone.Shutdown(soon(t)))
	}
	least := time.Hour
	for range 5 { // a busy machine may take its time with one of them
		resource, err := safe.NewResource(w.contexts[1], func() {})
		require.NoError(t, err)
		revoked := time.Now()
		resource.Revoke()
		least = min(least, time.Since(revoked))
	}
	assert.Less(t, least, 900*time.Millisecond, "it waits a second for launches that take longer")
	t.Logf("after %v", time.Since(from))
	select {
	case err := <-done:
		t.Fatal("it has not waited", err)
	default:
	}
	cause := errors.New("enough")
	w.comms[1].Abort(cause)
	assert.ErrorIs(t, <-done, cause)
	w.aborted(t, cause)
}
