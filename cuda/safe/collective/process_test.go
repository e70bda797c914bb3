//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

// Ranks in processes of their own, which are killed and stopped. With the double of NCCL, an
// operation between processes never completes: it shows what ends it. On two GPUs, NCCL
// itself runs.

package collective

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const roleVariable = "CUDABIND_TEST_RANK"

// roles are what a rank does once it has joined. What it says gets to the parent.
var roles = map[string]func(c *Comm, s *safe.Stream, b *safe.Buffer[float32]) error{
	"close": func(c *Comm, s *safe.Stream, b *safe.Buffer[float32]) error {
		if onGPU {
			if err := errors.Join(b.Fill(float32(c.Rank()+1)), AllReduce(c, s, b, b, Sum)); err != nil {
				return err
			}
			if err := c.Wait(context.Background(), s); err != nil {
				return err
			}
			say("sum", contentsOf(b)[0])
		}
		return c.Shutdown(context.Background())
	},
	"wait":      waiting,
	impatiently: waiting,
	"measure": func(c *Comm, s *safe.Stream, b *safe.Buffer[float32]) error {
		if err := measured(c, s, b.Context()); err != nil {
			return err
		}
		return c.Shutdown(context.Background())
	},
	"latency": sayLatencies,
	"fail":    failing,
	"idle":    func(*Comm, *safe.Stream, *safe.Buffer[float32]) error { select {} },
	"abort": func(c *Comm, s *safe.Stream, b *safe.Buffer[float32]) error {
		_, _ = fmt.Scanln() // the other rank has joined
		c.Abort(errors.New("on fire"))
		_ = c.Shutdown(context.Background())
		return nil
	},
	"leave": func(c *Comm, s *safe.Stream, b *safe.Buffer[float32]) error {
		err := c.Close()
		<-c.core.gone
		return err
	},
	"refuse": func(c *Comm, s *safe.Stream, b *safe.Buffer[float32]) error {
		for {
			err := c.core.session.usable()
			if err == nil {
				time.Sleep(time.Millisecond)
				continue
			}
			if refused := AllReduce(c, s, b, b, Sum); !errors.Is(refused, ErrPeerLost) {
				return fmt.Errorf("AllReduce: %w", refused)
			}
			say("left", err)
			return c.Shutdown(context.Background())
		}
	},
}

// impatiently is the role "wait" of a rank that soon takes a silent one for lost.
const impatiently = "wait impatiently"

func waiting(c *Comm, s *safe.Stream, b *safe.Buffer[float32]) error {
	err := AllReduce(c, s, b, b, Sum) // the other rank may be lost already
	say("waits")
	from := time.Now()
	if err == nil {
		err = c.Wait(context.Background(), s)
	}
	var e *PeerError
	if errors.As(err, &e) {
		say("lost", e.Rank, e.Reason)
	}
	say("waited", time.Since(from).Round(time.Millisecond))
	if err := c.Shutdown(context.Background()); !errors.Is(err, ErrAborted) {
		return fmt.Errorf("Shutdown: %w", err)
	}
	return s.Synchronize()
}

func contentsOf(b *safe.Buffer[float32]) []float32 {
	values := make([]float32, b.Len())
	_ = b.CopyToHost(values)
	return values
}

// say tells the parent.
func say(what string, more ...any) {
	fmt.Println("said:", what, strings.TrimSpace(fmt.Sprintln(more...)))
}

// TestRank is a rank.
func TestRank(t *testing.T) {
	role, ok := os.LookupEnv(roleVariable)
	if !ok {
		t.Skip("other tests start it")
	}
	if !onGPU {
		told.Absent = 1
	}
	o, err := FromEnv()
	require.NoError(t, err)
	o.PeerTimeout = time.Minute // a busy machine may stop a process for seconds
	if onGPU || role == impatiently {
		o.PeerTimeout = leastTimeout
	}
	x, err := safe.Open(o.LocalRank)
	require.NoError(t, err)
	defer x.Close()
	s, err := safe.NewStreamWith(x, safe.StreamOptions{NonBlocking: true})
	require.NoError(t, err)
	defer s.Close()
	b, err := safe.NewBuffer[float32](x, 1000)
	require.NoError(t, err)
	defer b.Close()
	c, err := Join(soon(t), x, o)
	require.NoError(t, err)
	if onGPU && os.Getenv(coldVariable) == "" { // NCCL connects the ranks at the first operation
		require.NoError(t, AllReduce(c, s, b, b, Sum))
		require.NoError(t, c.Wait(soon(t), s))
	}
	say("joined", c)
	if !onGPU { // NCCL has waited for the other ranks
		_, _ = fmt.Scanln()
	}
	require.NoError(t, roles[role](c, s, b))
	say("done")
}

// A process is a rank.
type process struct {
	*exec.Cmd
	in   io.Writer
	said chan string // closed at its end
}

// start starts a rank with each role, and waits until they have joined.
func start(t *testing.T, roles ...string) []*process {
	t.Helper()
	all := startTest(t, "TestRank", roleVariable, roles...)
	for _, p := range all {
		p.says(t, "joined")
	}
	if onGPU {
		return all
	}
	for _, p := range all {
		_, err := fmt.Fprintln(p.in)
		require.NoError(t, err)
	}
	return all
}

// startTest starts a rank for each value of a variable. A test is its program.
func startTest(t *testing.T, test, variable string, values ...string) []*process {
	t.Helper()
	devices, err := safe.Devices()
	require.NoError(t, err)
	if len(devices) < len(values) {
		t.Skipf("needs %d devices", len(values))
	}
	self, err := os.Executable()
	require.NoError(t, err)
	host, port, _ := strings.Cut(freeAddress(t), ":")
	var all []*process
	for rank, value := range values {
		p := &process{command.Built(self, "-test.run=^"+test+"$", "-test.timeout=3m"), nil, make(chan string, 100)}
		p.Env = append(os.Environ(), variable+"="+value, "COLLECTIVE_SECRET=a secret", "MASTER_ADDR="+host, "MASTER_PORT="+port,
			"TMPDIR="+t.TempDir(), // a process that is killed removes nothing
			fmt.Sprint("RANK=", rank), fmt.Sprint("LOCAL_RANK=", rank), fmt.Sprint("WORLD_SIZE=", len(values)))
		p.Stderr = os.Stderr
		out, err := p.StdoutPipe()
		require.NoError(t, err)
		p.in, err = p.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, p.Start())
		go func() {
			defer close(p.said)
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if line, ok := strings.CutPrefix(lines.Text(), "said: "); ok {
					p.said <- line
				} else if !strings.HasPrefix(lines.Text(), "PASS") {
					t.Logf("rank %d: %s", rank, lines.Text())
				}
			}
		}()
		t.Cleanup(func() {
			_ = p.Process.Kill()
			_ = p.Wait()
		})
		all = append(all, p)
	}
	return all
}

// says waits until the rank says something that begins so.
func (p *process) says(t *testing.T, what string) string {
	t.Helper()
	select {
	case line, ok := <-p.said:
		require.True(t, ok, "the process has ended instead of saying %q", what)
		require.Truef(t, strings.HasPrefix(line, what), "%q instead of %q", line, what)
		return line
	case <-time.After(2 * time.Minute):
		t.Fatalf("the process does not say %q", what)
		return ""
	}
}

func TestProcesses(t *testing.T) {
	all := start(t, "close", "close")
	for _, p := range all {
		if onGPU {
			assert.Equal(t, "sum 3", p.says(t, "sum"))
		}
		p.says(t, "done")
		assert.NoError(t, p.Wait())
	}
}

// TestKilled: the other ranks get an error that names the rank, and NCCL lets go.
func TestKilled(t *testing.T) {
	for _, victim := range []int{0, 1} {
		roles := []string{"wait", "wait"}
		roles[victim] = "idle"
		all := start(t, roles...)
		other := all[1-victim]
		other.says(t, "waits")
		require.NoError(t, all[victim].Process.Kill())
		assert.Contains(t, other.says(t, "lost"), fmt.Sprintf("lost %d ", victim))
		t.Log(other.says(t, "waited"))
		other.says(t, "done")
	}
}

// TestStopped: nothing is heard of a rank, though its connection stands.
func TestStopped(t *testing.T) {
	all := start(t, "idle", impatiently)
	all[1].says(t, "waits")
	require.NoError(t, all[0].Process.Signal(syscall.SIGSTOP))
	assert.Equal(t, "lost 0 nothing was heard of it for 3s", all[1].says(t, "lost"))
	t.Log(all[1].says(t, "waited"))
	all[1].says(t, "done")
}

func TestPeerAborts(t *testing.T) {
	all := start(t, "wait", "abort")
	all[0].says(t, "waits")
	_, err := fmt.Fprintln(all[1].in)
	require.NoError(t, err)
	assert.Contains(t, all[0].says(t, "lost"), "lost 1 it has failed: on fire")
	all[0].says(t, "waited")
	all[0].says(t, "done")
	all[1].says(t, "done")
}

// TestPeerLeaves: a rank closes its communicator, and ends.
func TestPeerLeaves(t *testing.T) {
	all := start(t, "refuse", "leave")
	assert.Contains(t, all[0].says(t, "left"), "rank 1 is lost: it has closed the communicator")
	all[1].says(t, "done")
	all[0].says(t, "done")
}

// TestWithoutLibrary: without NCCL, Open and Join name the missing library.
func TestWithoutLibrary(t *testing.T) {
	if os.Getenv("CUDABIND_NCCL_DOUBLE") != noLibrary {
		if onGPU {
			t.Skip("needs a machine without NCCL")
		}
		self, err := os.Executable()
		require.NoError(t, err)
		child := command.Built(self, "-test.run=^TestWithoutLibrary$", "-test.v")
		child.Env = append(os.Environ(), "CUDABIND_NCCL_DOUBLE="+noLibrary, "XDG_CACHE_HOME="+t.TempDir(),
			"CUDA_HOME=", "CUDA_PATH=", "VIRTUAL_ENV=", "CONDA_PREFIX=", "LD_LIBRARY_PATH=")
		out, err := child.CombinedOutput()
		require.NoError(t, err, "%s", out)
		if strings.Contains(string(out), "--- SKIP") {
			t.Skip("this machine has NCCL")
		}
		return
	}
	x := open(t, 1)[0]
	_, err := Open(soon(t), x)
	if err == nil {
		t.Skip("this machine has NCCL")
	}
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "cuda: collective.Open: NVIDIA's libraries need a GPU, and do not work with the simulated driver")
	_, err = Join(soon(t), x, Options{Size: 1})
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "cuda: collective.Join: NVIDIA's libraries need a GPU, and do not work with the simulated driver")
}
