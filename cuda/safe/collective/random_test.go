//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Two processes, one of which dies, stops, aborts, closes or gives up at a random moment: the other ends soon, and
// its GPU works on. On the simulated driver operations between processes do nothing, or do not complete, so that all of
// them are ended by something.

package collective

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	randomVariable  = "CUDABIND_TEST_RANDOM"    // the seed of a child
	secondsVariable = "CUDABIND_RANDOM_SECONDS" // how long TestRandomFailures runs
	seedVariable    = "CUDABIND_RANDOM_SEED"    // of its first round
)

// phases are what a rank does, in this order. It says when it begins one.
var phases = []string{"joining", "first", "single", "group", "graph", "queued", "closing"}

// Limits of the ranks. No call takes longer than stepLimit.
const (
	rankPatience = 4 * time.Second // of what waits for the other rank
	stepLimit    = 15 * time.Second
)

// TestRandomFailures starts two ranks again and again. It logs a seed with which a failure may come back.
func TestRandomFailures(t *testing.T) {
	length := 3 * time.Second
	if testing.Short() {
		length = time.Second
	}
	if text := os.Getenv(secondsVariable); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err)
		length = time.Duration(n) * time.Second
	}
	seed := rand.Uint64() % 1e9
	if text := os.Getenv(seedVariable); text != "" {
		_, err := fmt.Sscan(text, &seed)
		require.NoError(t, err)
	}
	outcomes := map[string]int{}
	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { outcomes[randomRound(t, seed)]++ })
	}
	t.Log(outcomes)
}

// event is what happens to a rank from outside.
type event struct {
	name string
	do   func(p *process) error
	ends bool // the rank says nothing any more
}

var events = []event{
	{"nothing", func(*process) error { return nil }, false},
	{"killed", func(p *process) error { return p.Process.Kill() }, true},
	{"stopped", func(p *process) error { return p.Process.Signal(syscall.SIGSTOP) }, true},
	{"paused", func(p *process) error {
		err := p.Process.Signal(syscall.SIGSTOP)
		time.Sleep(leastTimeout + time.Second)
		return errors.Join(err, p.Process.Signal(syscall.SIGCONT))
	}, false},
	{"delayed", func(p *process) error {
		err := p.Process.Signal(syscall.SIGSTOP)
		time.Sleep(leastTimeout / 3)
		return errors.Join(err, p.Process.Signal(syscall.SIGCONT))
	}, false},
}

// randomRound returns what has happened.
func randomRound(t *testing.T, seed uint64) string {
	r := rand.New(rand.NewPCG(seed, 0))
	e, phase, victim := events[r.IntN(len(events))], phases[r.IntN(len(phases))], r.IntN(2)
	after := time.Duration(float64(time.Second) * r.Float64() * r.Float64() * r.Float64())
	what := fmt.Sprintf("rank %d is %s %v after %s", victim, e.name, after, phase)
	all := startTest(t, "TestRandomRank", randomVariable, fmt.Sprint(seed), fmt.Sprint(seed))
	var last [2]string // that each has said
	for line := range all[victim].said {
		last[victim] = line
		if !strings.HasPrefix(line, phase) {
			continue
		}
		time.Sleep(after)
		if err := e.do(all[victim]); err != nil && !errors.Is(err, os.ErrProcessDone) {
			require.NoError(t, err)
		}
		break
	}
	for rank, p := range all {
		if rank == victim && e.ends {
			continue
		}
		limit := time.After(time.Duration(len(phases)+3) * stepLimit)
		for open := true; open; {
			select {
			case line, ok := <-p.said:
				if open = ok; ok {
					last[rank] = line
				}
			case <-limit:
				t.Errorf("%s: rank %d hangs after %q", what, rank, last[rank])
				open = false
			}
		}
		assert.Truef(t, strings.HasPrefix(last[rank], "done"), "%s: rank %d ends with %q", what, rank, last[rank])
	}
	return e.name + " after " + phase
}

// A limited step ends the process, with the stacks of all goroutines, if it takes too long.
type limited struct {
	name  string
	begun time.Time
	timer *time.Timer
}

func beginStep(name string) *limited {
	say(name)
	return &limited{name, time.Now(), time.AfterFunc(stepLimit, func() {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		fmt.Fprintf(os.Stderr, "%s: more than %v\n", name, stepLimit)
		os.Exit(7)
	})}
}

// end fails the test for an error that nothing has caused that happens here.
func (s *limited) end(t *testing.T, err error) error {
	t.Helper()
	s.timer.Stop()
	if err == nil {
		return nil
	}
	for _, expected := range []error{ErrAborted, ErrPeerLost, safe.ErrClosed, errGivenUp, context.DeadlineExceeded} {
		if errors.Is(err, expected) {
			return err
		}
	}
	assert.Equal(t, "joining", s.name, "%v", err) // which has many reasons to fail
	assert.False(t, safe.IsFatal(err), "%v", err)
	return err
}

var errGivenUp = errors.New("given up")

// TestRandomRank is a rank of TestRandomFailures. Both ranks enqueue the same operations.
func TestRandomRank(t *testing.T) {
	text, ok := os.LookupEnv(randomVariable)
	if !ok {
		t.Skip("TestRandomFailures starts it")
	}
	var seed uint64
	_, err := fmt.Sscan(text, &seed)
	require.NoError(t, err)
	if !onGPU {
		told.Absent, told.Nothing = 1, int32(min(seed%3, 1))
	}
	o, err := FromEnv()
	require.NoError(t, err)
	o.PeerTimeout = leastTimeout
	x, err := safe.Open(o.LocalRank)
	require.NoError(t, err)
	defer x.Close()
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	defer s.Close()
	b, err := safe.NewZeroed[float32](x, 1<<16)
	require.NoError(t, err)
	defer b.Close()
	r := &randomRank{both: rand.New(rand.NewPCG(seed, 1)), own: rand.New(rand.NewPCG(seed, uint64(2+o.Rank))), s: s, b: b}
	err = r.run(t, o, x)
	after := beginStep("working")
	require.NoError(t, s.Synchronize())
	require.NoError(t, b.Fill(2))
	assert.EqualValues(t, 2, contents(t, b)[1<<16-1])
	alone, failed := Open(soon(t), x)
	require.NoError(t, failed)
	require.NoError(t, AllReduce(alone[0], s, b, b, Sum))
	require.NoError(t, alone[0].Wait(soon(t), s))
	require.NoError(t, alone.Shutdown(soon(t)))
	after.timer.Stop()
	if !t.Failed() {
		say("done", strings.ReplaceAll(fmt.Sprint(err), "\n", " "))
	}
}

type randomRank struct {
	both, own *rand.Rand // of the seed; of the rank, too
	s         *safe.Stream
	b         *safe.Buffer[float32]
	c         *Comm
	give      context.CancelCauseFunc
}

// run returns why the rank has ended, or nil.
func (r *randomRank) run(t *testing.T, o Options, x *safe.Context) error {
	ctx, give := context.WithCancelCause(context.Background())
	defer give(nil)
	r.give = give
	trouble := r.own.IntN(2 * len(phases)) // or none
	if trouble == 0 {
		time.AfterFunc(r.soon(), func() { give(errGivenUp) })
	}
	s := beginStep(phases[0])
	patience := rankPatience
	if onGPU { // the first time takes long, and ranks begin at different times
		patience *= 3
	}
	joining, cancel := context.WithTimeout(ctx, patience)
	c, err := Join(joining, x, o)
	cancel()
	if s.end(t, err) != nil {
		return err
	}
	r.c = c
	defer context.AfterFunc(ctx, func() { c.Abort(context.Cause(ctx)) })()
	for i, phase := range phases[1 : len(phases)-1] {
		s := beginStep(phase)
		if trouble == i+1 {
			r.makeTrouble()
		}
		if err = s.end(t, r.do(ctx, phase)); err != nil {
			break
		}
	}
	s = beginStep(phases[len(phases)-1])
	if err == nil && trouble == len(phases)-1 {
		r.makeTrouble()
	}
	closing, cancel := context.WithTimeout(ctx, rankPatience)
	defer cancel()
	closed := s.end(t, c.Shutdown(closing))
	s = beginStep("releasing")
	<-c.core.gone
	s.timer.Stop()
	return errors.Join(err, closed)
}

// soon is a moment to wait: often a short one.
func (r *randomRank) soon() time.Duration {
	return time.Duration(float64(time.Second) * r.own.Float64() * r.own.Float64() * r.own.Float64())
}

// makeTrouble does something in a moment that ends the communicator.
func (r *randomRank) makeTrouble() {
	f := []func(){
		func() { r.c.Abort(errGivenUp) },
		func() { _ = r.c.Close() },
		func() { r.give(errGivenUp) },
	}[r.own.IntN(3)]
	time.AfterFunc(r.soon(), f)
}

// do does a phase. If the other rank does not take part, it gives up.
func (r *randomRank) do(ctx context.Context, phase string) error {
	ctx, cancel := context.WithTimeout(ctx, rankPatience)
	defer cancel()
	defer context.AfterFunc(ctx, func() { r.c.Abort(context.Cause(ctx)) })()
	sum := func() error { return AllReduce(r.c, r.s, r.b, r.b, Average) }
	enqueue, times := sum, 1+r.both.IntN(30)
	switch phase {
	case "first":
		times = 1
	case "group":
		enqueue = func() error {
			return Group(func(g *Calls) error {
				in := r.c.In(g)
				return errors.Join(AllReduce(in, r.s, r.b, r.b, Max), Broadcast(in, r.s, r.b, 1))
			})
		}
	case "graph":
		e, err := r.s.CaptureExecutable(sum)
		if err != nil {
			return err
		}
		defer e.Close()
		enqueue = func() error { return e.Launch(r.s) }
	case "queued":
		times *= 20
	}
	for range times {
		if err := enqueue(); err != nil {
			return err
		}
	}
	return r.c.Wait(ctx, r.s)
}
