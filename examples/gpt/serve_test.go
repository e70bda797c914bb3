//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// simulated skips a test that needs the simulated driver.
func simulated(t *testing.T) {
	if onGPU {
		t.Skip("needs the simulated driver, which can be held and can fail")
	}
}

// hold stops the GPU until control.Hold(false), or the end of the test.
func hold(t *testing.T) {
	control.Hold(true)
	t.Cleanup(func() { control.Hold(false) }) // before anything is closed
}

// holdIn has the GPU stop in so many steps of the decoder, however late the test notices, until control.Hold(false) or the
// end of the test.
func holdIn(t *testing.T, steps int64) (held func() bool) {
	untilHeld.Store(steps)
	t.Cleanup(func() { untilHeld.Store(0); control.Hold(false) }) // before anything is closed
	return func() bool { return untilHeld.Load() <= 0 }
}

// answering returns how many requests for a text the server is at. It ends those whose client it has noticed to be gone.
func answering() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), ".(*server).write(")
}

// A served model is at a URL.
type served struct {
	url   string
	stop  context.CancelFunc
	ended chan error // gets what the server has returned
}

// start serves a model with so many slots, and room for so many requests that wait. The end of the
// test stops it.
func start(t *testing.T, file string, slots, room int) served {
	leavesNothing(t)
	l, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	s := served{"http://" + l.Addr().String(), cancel, make(chan error, 1)}
	go func() {
		defer close(s.ended)
		s.ended <- loaded(ctx, options{model: file}, slots, func(d *decoder) error {
			s := newServer(d)
			s.waiting = make(chan struct{}, room)
			return s.serve(ctx, l)
		})
	}()
	t.Cleanup(func() {
		if !onGPU {
			control.Hold(false)
		}
		cancel()
		assert.NoError(t, <-s.ended) // nil if the test has got it
	})
	_, err = http.Get(s.url) // until it serves
	require.NoError(t, err)
	return s
}

// ask begins a request. The caller reads the body and closes it.
func (s served) ask(ctx context.Context, w wish) (*http.Response, error) {
	url := fmt.Sprintf("%s/write?length=%d&temperature=0", s.url, w.length)
	q, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(w.prompt))
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(q)
}

// text returns the whole text.
func (s served) text(ctx context.Context, w wish) (string, error) {
	answer, err := s.ask(ctx, w)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, body)
	}
	return string(body), err
}

// TestServe: the server's text is that of -write, and it ends without an error when it is to.
func TestServe(t *testing.T) {
	leavesNothing(t)
	w := wish{"func main", 12}
	o := options{model: modelFile(t), prompt: w.prompt, length: w.length}
	var want strings.Builder
	require.NoError(t, run(t.Context(), o, &want))

	o.serve = "localhost:0"
	ctx, stop := context.WithCancel(t.Context())
	urls, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- run(ctx, o, writer(func(line []byte) { urls <- strings.TrimSpace(string(line)) })) }()
	s := served{url: <-urls}
	text, err := s.text(t.Context(), w)
	require.NoError(t, err)
	assert.Equal(t, want.String(), w.prompt+text+"\n")
	page, err := http.Get(s.url)
	require.NoError(t, err)
	defer page.Body.Close()
	body, err := io.ReadAll(page.Body)
	require.NoError(t, err)
	assert.Contains(t, string(body), "<textarea")
	stop()
	assert.NoError(t, <-ended)
}

// TestServeMany: more clients than slots each get their texts.
func TestServeMany(t *testing.T) {
	file := modelFile(t)
	all := wishes(24)
	want := alone(t, file, all)
	s := start(t, file, 3, 8)
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			for i := c; i < len(all); i += 8 {
				text, err := s.text(t.Context(), all[i])
				assert.NoError(t, err)
				assert.Equal(t, want[i], text, "%v", all[i])
			}
		})
	}
	clients.Wait()
}

// TestServeCancel: who goes away makes room for others at once, in a slot and before.
func TestServeCancel(t *testing.T) {
	simulated(t)
	file := modelFile(t)
	last := wish{"func", 3}
	want := alone(t, file, []wish{last})
	s := start(t, file, 1, 2)
	hold(t)
	before := control.Calls("cuGraphLaunch")
	var gone sync.WaitGroup
	for i := range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		gone.Go(func() {
			_, err := s.text(ctx, wish{"hello", 50})
			assert.ErrorIs(t, err, context.Canceled)
		})
		if i == 0 {
			eventually(t, func() bool { return control.Calls("cuGraphLaunch") > before }, "it has the slot")
		}
		eventually(t, func() bool { return answering() == 1 }, "the server has it")
		cancel()
		eventually(t, func() bool { return answering() == 0 }, "the server has noticed")
	}
	gone.Wait()
	time.AfterFunc(100*time.Millisecond, func() { control.Hold(false) }) // meanwhile the next one waits
	text, err := s.text(t.Context(), last)
	require.NoError(t, err)
	assert.Equal(t, want[0], text)
	assert.LessOrEqual(t, control.Calls("cuGraphLaunch")-before, 1+6)
}

func eventually(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, time.Minute, time.Millisecond, what)
}

// A stuck reader blocks who writes to it until it is closed.
type stuck struct {
	http.ResponseWriter
	closed chan struct{}
}

func (s stuck) Write([]byte) (int, error) {
	<-s.closed
	return 0, io.ErrClosedPipe
}

// TestServeSlowReader: one who does not read holds up nobody, not even for a slot.
func TestServeSlowReader(t *testing.T) {
	file := modelFile(t)
	w := wish{"func", 8}
	want := alone(t, file, []wish{w})
	decoding(t, file, 1, func(d *decoder) {
		s := newServer(d)
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { <-s.ended }()
		defer cancel()
		go s.run(ctx)
		slow := stuck{httptest.NewRecorder(), make(chan struct{})}
		aborted := make(chan any)
		go func() {
			defer func() { aborted <- recover() }()
			s.handler().ServeHTTP(slow, httptest.NewRequest("POST", "/write?length=40", strings.NewReader("f")))
		}()
		answer := httptest.NewRecorder()
		s.handler().ServeHTTP(answer, httptest.NewRequest("POST", "/write?length=8&temperature=0", strings.NewReader("func")))
		assert.Equal(t, want[0], answer.Body.String())
		close(slow.closed)
		assert.Equal(t, http.ErrAbortHandler, <-aborted)
	})
}

// TestServeAdmit: a request that has a slot does not wait any more, also if its handler is slow to go on.
func TestServeAdmit(t *testing.T) {
	s := newServer(&decoder{slots: 1})
	s.waiting <- struct{}{}
	go func() { s.incoming <- &request{context: t.Context()} }()
	texts, err := s.admit(t.Context(), nil)
	require.NoError(t, err)
	assert.Len(t, texts, 1)
	assert.Empty(t, s.waiting)
}

// TestServeTooMany: a request for which there is no room is refused, and the others are not.
func TestServeTooMany(t *testing.T) {
	simulated(t)
	file := modelFile(t)
	w := wish{"func", 3}
	s := start(t, file, 1, 1)
	hold(t)
	before := control.Calls("cuGraphLaunch")
	results := make(chan error)
	ask := func() {
		_, err := s.text(t.Context(), w)
		results <- err
	}
	go ask()
	eventually(t, func() bool { return control.Calls("cuGraphLaunch") > before }, "it has the slot")
	go ask()
	go ask()
	assert.EqualError(t, <-results, "503 Service Unavailable: too many texts are being written: try again later\n")
	control.Hold(false)
	assert.NoError(t, <-results)
	assert.NoError(t, <-results)
}

// TestServeGoneWaiters: who goes away while it waits makes room for others at once, before any slot is free.
func TestServeGoneWaiters(t *testing.T) {
	simulated(t)
	s := start(t, modelFile(t), 1, 1)
	w := wish{"func", 3}
	hold(t)
	before := control.Calls("cuGraphLaunch")
	results := make(chan error, 2)
	ask := func(ctx context.Context) {
		_, err := s.text(ctx, w)
		results <- err
	}
	go ask(t.Context())
	eventually(t, func() bool { return control.Calls("cuGraphLaunch") > before }, "it has the slot")
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		go ask(ctx)
		eventually(t, func() bool { return answering() == 2 || len(results) > 0 }, "the server has it")
		cancel()
		assert.ErrorIs(t, <-results, context.Canceled, "it was to wait")
		eventually(t, func() bool { return answering() == 1 }, "the server has noticed")
	}
	go ask(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { control.Hold(false) })
	assert.NoError(t, <-results)
	assert.NoError(t, <-results)
}

// TestServeRefuses: each bad request gets an answer that says what is wrong and what to do.
func TestServeRefuses(t *testing.T) {
	s := start(t, modelFile(t), 1, 1)
	for _, c := range []struct{ name, query, prompt, want string }{
		{"no prompt", "", "", "the prompt is empty: give the text to write on from"},
		{"no token", "length=0", "f", "length 0: ask for at least 1 token"},
		{"too many tokens", "length=61", "func", "a prompt of 4 bytes and 61 tokens more do not fit into the model's context of 64: shorten the prompt, or ask for fewer"},
		{"more than an int", "length=9223372036854775807", "func", "a prompt of 4 bytes and 9223372036854775807 tokens more do not fit into the model's context of 64: shorten the prompt, or ask for fewer"},
		{"a prompt that is too long", "length=1", strings.Repeat("f", 65), "the prompt does not fit into the model's context of 64: shorten it"},
		{"a length that is no number", "length=many", "f", `length "many": must be a number of tokens`},
		{"a temperature that is no number", "temperature=hot", "f", `temperature "hot": must be a number from 0 to 100`},
		{"a temperature below 0", "length=1&temperature=-1", "f", "temperature -1: must be from 0 to 100"},
		{"not a number", "length=1&temperature=NaN", "f", "temperature NaN: must be from 0 to 100"},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer, err := http.Post(s.url+"/write?"+c.query, "text/plain", strings.NewReader(c.prompt))
			require.NoError(t, err)
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			assert.Equal(t, http.StatusBadRequest, answer.StatusCode)
			assert.Equal(t, c.want+"\n", string(body))
		})
	}
	long, err := http.NewRequest("GET", s.url, nil)
	require.NoError(t, err)
	long.Header.Set("X", strings.Repeat("x", 100<<10))
	refused, err := http.DefaultClient.Do(long)
	require.NoError(t, err)
	defer refused.Body.Close()
	assert.Equal(t, http.StatusRequestHeaderFieldsTooLarge, refused.StatusCode, "many of these take much memory")
	answer, err := http.Get(s.url + "/write")
	require.NoError(t, err)
	defer answer.Body.Close()
	assert.Equal(t, http.StatusMethodNotAllowed, answer.StatusCode)
}

// TestServeEnds: when the server is to end, or the GPU fails, so do all requests, those that have
// begun and those that wait. No part of a text looks like a whole one.
func TestServeEnds(t *testing.T) {
	simulated(t)
	for _, c := range []struct {
		name string
		end  func(served)
		want error
	}{
		{"by its context", func(s served) { s.stop() }, nil},
		{"by a fault", func(served) {
			control.FaultDelay(0)
			control.Fault(uint32(driver.CUDA_ERROR_ILLEGAL_ADDRESS))
		}, driver.CUDA_ERROR_ILLEGAL_ADDRESS},
		{"by a launch that fails", func(served) {
			control.Fail("cuGraphLaunch", 1, uint32(driver.CUDA_ERROR_INVALID_VALUE))
			control.Hold(false)
		}, driver.CUDA_ERROR_INVALID_VALUE},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t, modelFile(t), 2, 8)
			goroutines := runtime.NumGoroutine()
			held := holdIn(t, 6)
			var clients sync.WaitGroup
			for i := range 5 {
				clients.Go(func() {
					text, err := s.text(t.Context(), wish{"f", 60})
					assert.Error(t, err, "client %d got %q", i, text)
				})
			}
			eventually(t, held, "texts are being written")
			c.end(s)
			clients.Wait()  // not for the GPU
			control.Reset() // a real driver cannot recover
			assert.ErrorIs(t, <-s.ended, c.want)
			http.DefaultClient.CloseIdleConnections()
			eventually(t, func() bool { return runtime.NumGoroutine() < goroutines }, "the server's goroutines are gone")
		})
	}
}
