//go:build ((cgo || cudabind_nocgo) && linux && (amd64 || arm64)) || (windows && amd64)

// Which waits print what kernels have written by printf. The simulated driver prints nothing: there, the
// test counts the call that makes CUDA print.

package safe_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sayPTX is a kernel that prints "hi".
const sayPTX = `.version 6.0
.target sm_50
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 format, .param .b64 args);
.global .align 1 .b8 text[4] = {104, 105, 10, 0};
.visible .entry say()
{
	.reg .b64 %rd<3>;
	.reg .b32 %r<2>;
	mov.u64 %rd0, text;
	cvta.global.u64 %rd1, %rd0;
	mov.u64 %rd2, 0;
	{
	.param .b64 format;
	st.param.b64 [format+0], %rd1;
	.param .b64 args;
	st.param.b64 [args+0], %rd2;
	.param .b32 r;
	call.uni (r), vprintf, (format, args);
	ld.param.b32 %r0, [r+0];
	}
	ret;
}
`

// printers are what a program may do once a kernel has completed, and whether that prints.
var printers = []struct {
	name   string
	prints bool
	do     func(x *safe.Context, s *safe.Stream, b *safe.Buffer[byte]) error
}{
	{"Stream.SynchronizeBlocking", true, func(_ *safe.Context, s *safe.Stream, _ *safe.Buffer[byte]) error { return s.SynchronizeBlocking() }},
	{"Context.Synchronize", true, func(x *safe.Context, _ *safe.Stream, _ *safe.Buffer[byte]) error { return x.Synchronize() }},
	{"Buffer.Download", true, func(_ *safe.Context, _ *safe.Stream, b *safe.Buffer[byte]) error { _, err := b.Download(); return err }},
	{"Stream.Synchronize", false, func(_ *safe.Context, s *safe.Stream, _ *safe.Buffer[byte]) error { return s.Synchronize() }},
	{"Context.Wait", false, func(x *safe.Context, _ *safe.Stream, _ *safe.Buffer[byte]) error { return x.Wait(context.Background()) }},
	{"Stream.Completion", false, func(_ *safe.Context, s *safe.Stream, _ *safe.Buffer[byte]) error {
		_, err := s.Completion().Wait(context.Background())
		return err
	}},
}

const printVariable = "CUDABIND_TEST_PRINT"

func TestGPUWhatPrints(t *testing.T) {
	if !onGPU {
		t.Skip("kernels of the simulated driver print nothing")
	}
	for i, p := range printers {
		if os.Getenv(printVariable) == p.name {
			printOnce(t, i)
			return
		}
	}
	self, err := os.Executable()
	require.NoError(t, err)
	for _, p := range printers {
		t.Run(p.name, func(t *testing.T) {
			var out []byte
			early := true // a wait of package safe's may print it
			for tries := 0; early && tries < 10; tries++ {
				child := command.Built(self, "-test.run=^TestGPUWhatPrints$", "-test.timeout=1m")
				child.Env = append(os.Environ(), printVariable+"="+p.name)
				out, err = child.CombinedOutput()
				require.NoError(t, err, "%s", out)
				early = bytes.Contains(out, []byte("hi\nbefore"))
			}
			want := "before\nafter\nhi\n"
			if p.prints {
				want = "before\nhi\nafter\n"
			}
			assert.Contains(t, string(out), want)
		})
	}
}

func printOnce(t *testing.T, i int) {
	x := open(t, 0)
	s, b := stream(t, x), buffer[byte](t, x, 1)
	m, err := safe.Load(x, []byte(sayPTX))
	require.NoError(t, err)
	closing(t, m)
	say, err := m.Kernel("say")
	require.NoError(t, err)
	require.NoError(t, b.Fill(0))
	require.NoError(t, say.Launch(s, one))
	for done := false; !done; time.Sleep(time.Millisecond) {
		done, err = s.Query()
		require.NoError(t, err)
	}
	fmt.Println("before")
	require.NoError(t, printers[i].do(x, s, b))
	fmt.Println("after")
}

// TestSimBlockingWaitPrints: a wait of the driver's, which prints, is made in any case.
func TestSimBlockingWaitPrints(t *testing.T) {
	needsSimulated(t)
	startClean(t) // the destruction of what tests before have closed makes such calls, too
	x := open(t, 0)
	s, b, g := stream(t, x), buffer[byte](t, x, 1<<20), newGate(t, x)
	for _, test := range []struct {
		name string
		work func() error
	}{
		{"no work", func() error { return nil }},
		{"completed work", func() error { return errors.Join(b.FillAsync(s, 0), s.Synchronize()) }},
		{"running work", func() error {
			g.shut(t, s)
			time.AfterFunc(10*time.Millisecond, g.open)
			return nil
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.NoError(t, test.work())
			before := simulated.Calls("cuEventSynchronize")
			require.NoError(t, s.SynchronizeBlocking())
			assert.Equal(t, 1, simulated.Calls("cuEventSynchronize")-before)
		})
	}
}

// BenchmarkSynchronizeBlocking measures it on a stream without work, beside a wait that does not print.
func BenchmarkSynchronizeBlocking(b *testing.B) {
	x := open(b, 0)
	s := stream(b, x)
	for name, wait := range map[string]func() error{"Synchronize": s.Synchronize, "SynchronizeBlocking": s.SynchronizeBlocking} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				require.NoError(b, wait())
			}
		})
	}
}
