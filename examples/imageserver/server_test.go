//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color/palette"
	"image/draw"
	"image/jpeg"
	"image/png"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// started serves with a filter of its own. It returns the address, a function that ends the
// server, and one that waits for its end.
func started(t *testing.T, workers int, timeout time.Duration) (url string, stop func(), ended func() error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := newService(t, workers, timeout)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l, s) }()
	ended = sync.OnceValue(func() error { return <-done })
	t.Cleanup(func() { stop(); ended() })
	return "http://" + l.Addr().String() + "/blur", stop, ended
}

func newService(t *testing.T, workers int, timeout time.Duration) *service {
	return &service{
		filter:    newFilter(t, workers),
		maxBytes:  20_000,
		maxBodies: 1_000_000,
		maxPixels: testPixels,
		timeout:   timeout,
		places:    make(chan struct{}, 2*workers),
	}
}

// post sends a picture. It returns the status, and the answer or an error's text.
func post(t *testing.T, url string, body []byte) (int, image.Image, string) {
	t.Helper()
	r, err := http.Post(url, "", bytes.NewReader(body))
	if !assert.NoError(t, err) {
		return 0, nil, ""
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	assert.NoError(t, err)
	if r.StatusCode != http.StatusOK {
		return r.StatusCode, nil, string(text)
	}
	assert.Equal(t, "image/png", r.Header.Get("Content-Type"))
	m, err := png.Decode(bytes.NewReader(text))
	assert.NoError(t, err)
	return r.StatusCode, m, ""
}

func asPNG(t *testing.T, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, m))
	return b.Bytes()
}

func asJPEG(t *testing.T, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, jpeg.Encode(&b, m, nil))
	return b.Bytes()
}

// TestPictures sends pictures of several formats and sizes, all at once, and compares the answers
// with plain Go.
func TestPictures(t *testing.T) {
	url, _, _ := started(t, 2, time.Minute)
	gray := image.NewGray(image.Rect(0, 0, 31, 17))
	draw.Draw(gray, gray.Rect, picture(31, 17, 3), image.Point{}, draw.Src)
	colours := image.NewPaletted(image.Rect(0, 0, 40, 30), palette.Plan9)
	draw.Draw(colours, colours.Rect, picture(40, 30, 4), image.Point{}, draw.Src)
	for _, c := range []struct {
		name string
		body []byte
	}{
		{"PNG with alpha", asPNG(t, picture(33, 9, 1))},
		{"PNG with a palette", asPNG(t, colours)},
		{"gray PNG", asPNG(t, gray)},
		{"JPEG", asJPEG(t, picture(50, 40, 2))},
		{"gray JPEG", asJPEG(t, gray)},
		{"one pixel", asPNG(t, picture(1, 1, 5))},
		{"one row", asPNG(t, picture(100, 1, 5))},
		{"one column", asPNG(t, picture(1, 100, 5))},
	} {
		t.Run(c.name, func(t *testing.T) {
			sent, _, err := image.Decode(bytes.NewReader(c.body))
			require.NoError(t, err)
			want, _, err := image.Decode(bytes.NewReader(asPNG(t, expected(sent)))) // PNG rounds alpha
			require.NoError(t, err)
			var clients sync.WaitGroup
			for range 6 {
				clients.Go(func() {
					status, got, text := post(t, url, c.body)
					assert.Equal(t, http.StatusOK, status, text)
					assert.Equal(t, want, got)
				})
			}
			clients.Wait()
		})
	}
}

// TestRefused: a request that the service cannot answer gets an HTTP error that says why.
func TestRefused(t *testing.T) {
	url, _, _ := started(t, 1, time.Minute)
	good := asPNG(t, picture(20, 20, 1))
	for _, c := range []struct {
		name   string
		body   []byte
		status int
		says   string
	}{
		{"nothing", nil, 415, "neither a PNG nor a JPEG"},
		{"text", []byte("a picture"), 415, "neither a PNG nor a JPEG"},
		{"cut off", good[:len(good)/2], 400, "png: invalid format"},
		{"damaged", append(good[:20:20], make([]byte, 100)...), 400, "png: invalid format"},
		{"too many bytes", make([]byte, 20_001), 413, "request body too large"},
		{"too many pixels", asPNG(t, image.NewGray(image.Rect(0, 0, 101, 100))), 413, "the picture is too large: 101 x 100, more than 10000 pixels"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, _, text := post(t, url, c.body)
			assert.Equal(t, c.status, status)
			assert.Contains(t, text, c.says)
		})
	}
	for _, c := range []struct {
		method, url string
		status      int
	}{
		{http.MethodGet, url, http.StatusMethodNotAllowed},
		{http.MethodPost, strings.TrimSuffix(url, "blur"), http.StatusNotFound},
	} {
		request, err := http.NewRequest(c.method, c.url, nil)
		require.NoError(t, err)
		r, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		r.Body.Close()
		assert.Equal(t, c.status, r.StatusCode, "%s %s", c.method, c.url)
	}
}

// TestBusy: while the GPU is stopped, requests end with an error after their time, those that wait
// for a worker or for a place too. Afterwards the service works again.
func TestBusy(t *testing.T) {
	needsSimulated(t)
	s := newService(t, 1, 200*time.Millisecond)
	body := asPNG(t, picture(10, 10, 1))
	post := func() *httptest.ResponseRecorder { // by no connection, which would have ended in that time on a busy machine
		w := httptest.NewRecorder()
		s.blur(w, httptest.NewRequest(http.MethodPost, "/blur", bytes.NewReader(body)))
		return w
	}
	hold(t)
	var clients sync.WaitGroup
	for range 5 {
		clients.Go(func() {
			w := post()
			assert.Equal(t, http.StatusServiceUnavailable, w.Code)
			assert.Equal(t, "too busy\n", w.Body.String())
		})
	}
	clients.Wait()
	control.Hold(false)
	assert.Eventually(t, func() bool { return post().Code == http.StatusOK }, time.Minute, time.Millisecond)
}

// TestSlowClients: clients that send half a picture and then nothing do not keep others waiting.
func TestSlowClients(t *testing.T) {
	url, _, _ := started(t, 1, time.Minute)
	body := asPNG(t, picture(10, 10, 1))
	for range 10 {
		c, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/blur"))
		require.NoError(t, err)
		defer c.Close()
		_, err = fmt.Fprintf(c, "POST /blur HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", len(body))
		require.NoError(t, err)
		line, err := bufio.NewReader(c).ReadString('\n') // the server reads the body
		require.NoError(t, err)
		require.Equal(t, "HTTP/1.1 100 Continue\r\n", line)
		_, err = c.Write(body[:len(body)/2])
		require.NoError(t, err)
	}
	status, _, text := post(t, url, body)
	assert.Equal(t, http.StatusOK, status, text)
}

// TestTooSlow: a client that has not sent its picture in time is told so.
func TestTooSlow(t *testing.T) {
	w := httptest.NewRecorder()
	newService(t, 1, time.Minute).blur(w, httptest.NewRequest(http.MethodPost, "/blur", iotest.ErrReader(os.ErrDeadlineExceeded)))
	assert.Equal(t, http.StatusRequestTimeout, w.Code)
}

// slowReader is a client that does not read its answer.
type slowReader struct {
	*httptest.ResponseRecorder
	writes chan struct{}
	end    <-chan struct{}
}

func (s *slowReader) Write([]byte) (int, error) {
	s.writes <- struct{}{}
	<-s.end
	return 0, errors.New("the client is gone")
}

// TestSlowReaders: clients that do not read their answers do not keep others waiting.
func TestSlowReaders(t *testing.T) {
	s := newService(t, 1, time.Minute)
	body := asPNG(t, picture(10, 10, 1))
	end, writes := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			r := httptest.NewRequest(http.MethodPost, "/blur", bytes.NewReader(body))
			w := httptest.NewRecorder()
			s.blur(&slowReader{w, writes, end}, r)
			assert.Equal(t, http.StatusOK, w.Code)
		})
	}
	for range 5 {
		<-writes
	}
	close(end)
	all.Wait()
	assert.Zero(t, s.bodies.Load())
}

// TestBodies: requests that together are too large for the memory are refused, until others are done.
func TestBodies(t *testing.T) {
	s := newService(t, 1, time.Minute)
	body := asPNG(t, picture(10, 10, 1))
	s.maxBodies = int64(len(body)) + 10
	sent, more := io.Pipe()
	r := httptest.NewRequest(http.MethodPost, "/blur", sent)
	first := make(chan int)
	go func() {
		w := httptest.NewRecorder()
		s.blur(w, r)
		first <- w.Code
	}()
	half := len(body) / 2
	_, err := more.Write(body[:half])
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.bodies.Load() == int64(half) }, time.Minute, time.Millisecond)
	w := httptest.NewRecorder()
	s.blur(w, httptest.NewRequest(http.MethodPost, "/blur", bytes.NewReader(body)))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	_, err = more.Write(body[half:])
	require.NoError(t, err)
	more.Close()
	assert.Equal(t, http.StatusOK, <-first)
	assert.Zero(t, s.bodies.Load())
}

// TestAnswers: answers that nobody reads take no more memory than requests may, however small those were.
func TestAnswers(t *testing.T) {
	s := newService(t, 1, time.Minute)
	body := asPNG(t, picture(50, 50, 1))
	answer, err := s.blurred(t.Context(), body)
	require.NoError(t, err)
	s.maxBodies = int64(3 * len(answer))
	s.maxBodies -= 1 // so that there is no room for a third one
	require.Less(t, len(body), len(answer))
	end, writes := make(chan struct{}), make(chan struct{})
	ask := func(w http.ResponseWriter) {
		s.blur(w, httptest.NewRequest(http.MethodPost, "/blur", bytes.NewReader(body)))
	}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() { ask(&slowReader{httptest.NewRecorder(), writes, end}) })
	}
	for range 2 {
		<-writes
	}
	w := httptest.NewRecorder()
	ask(w)
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	close(end)
	all.Wait()
	w = httptest.NewRecorder()
	ask(w)
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Zero(t, s.bodies.Load())
}

// longJPEG returns a progressive picture of side x side pixels, which is sent so many times, each in a few bytes.
func longJPEG(side, times int) []byte {
	var b bytes.Buffer
	segment := func(marker byte, data ...byte) {
		b.Write([]byte{0xff, marker, 0, byte(2 + len(data))})
		b.Write(data)
	}
	b.Write([]byte{0xff, 0xd8})
	segment(0xdb, append([]byte{0}, bytes.Repeat([]byte{1}, 64)...)...)
	segment(0xc2, 8, byte(side>>8), byte(side), byte(side>>8), byte(side), 1, 1, 0x11, 0)
	segment(0xc4, append([]byte{0x10, 1}, append(make([]byte, 15), 0xe0)...)...) // the code 0 means up to 32767 empty blocks
	blocks := (side + 7) / 8 * ((side + 7) / 8)
	for range times {
		segment(0xda, 1, 1, 0, 1, 63, 0)
		bits, n := uint64(0), 0
		for left := blocks; left > 0; left -= 32767 {
			bits, n = bits<<15|1<<14-1, n+15
		}
		for ; n%8 != 0; n++ {
			bits = bits<<1 | 1
		}
		for n -= 8; n >= 0; n -= 8 {
			if b.WriteByte(byte(bits >> n)); byte(bits>>n) == 0xff {
				b.WriteByte(0)
			}
		}
	}
	b.Write([]byte{0xff, 0xd9})
	return b.Bytes()
}

// ending is a context that ends once it was asked so often whether it has.
type ending struct {
	context.Context
	left, asked int // before the end and after it
}

func (e *ending) Err() error {
	if e.left > 0 {
		e.left--
		return nil
	}
	e.asked++
	return context.DeadlineExceeded
}

// TestLongDecoding: a picture that takes long to decode is read no further when its time is over.
func TestLongDecoding(t *testing.T) {
	s := newService(t, 1, time.Minute)
	s.maxPixels = 1 << 20
	_, err := jpeg.Decode(bytes.NewReader(longJPEG(1024, 3)))
	require.NoError(t, err)
	ctx := &ending{Context: t.Context(), left: 5}
	_, err = s.blurred(ctx, longJPEG(1024, 10_000))
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, ctx.asked, 5)
	assert.Empty(t, s.places)
}

// TestPlaces: no more pictures are decoded at once than there are places.
func TestPlaces(t *testing.T) {
	s := newService(t, 1, time.Minute)
	s.places = nil // none is ever free
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.blurred(ctx, asPNG(t, picture(10, 10, 1)))
	assert.ErrorIs(t, err, context.Canceled)
	_, err = s.blurred(ctx, asPNG(t, image.NewGray(image.Rect(0, 0, 101, 100))))
	assert.ErrorIs(t, err, errTooLarge, "found before it waits")
}

// TestEnded: a request that ends once it has a place is not called a damaged picture.
func TestEnded(t *testing.T) {
	s := newService(t, 1, time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	body := asPNG(t, picture(10, 10, 1))
	for range 50 { // a free place and the end are both there: half of them get the place
		_, err := s.blurred(ctx, body)
		assert.ErrorIs(t, err, context.Canceled)
	}
	assert.Empty(t, s.places)
}

// TestShutdown: a server that is told to end takes no more requests, and answers the one in
// progress.
func TestShutdown(t *testing.T) {
	needsSimulated(t)
	url, stop, ended := started(t, 1, time.Minute)
	hold(t)
	before := control.Calls("cuLaunchKernel")
	answered := make(chan int)
	go func() {
		status, _, _ := post(t, url, asPNG(t, picture(10, 10, 1)))
		answered <- status
	}()
	require.Eventually(t, func() bool { return control.Calls("cuLaunchKernel") == before+2 }, time.Minute, time.Millisecond)
	stop()
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/blur"))
		if err == nil {
			c.Close()
		}
		return err != nil
	}, time.Minute, time.Millisecond)
	control.Hold(false)
	assert.Equal(t, http.StatusOK, <-answered)
	assert.NoError(t, ended())
}

// TestLost: a fault of the GPU, after which only a new process can use CUDA, ends the server with
// an error.
func TestLost(t *testing.T) {
	needsSimulated(t)
	url, _, ended := started(t, 1, time.Minute)
	control.FaultDelay(0)
	control.Fault(uint32(driver.CUDA_ERROR_ILLEGAL_ADDRESS))
	status, _, text := post(t, url, asPNG(t, picture(10, 10, 1)))
	assert.Equal(t, http.StatusInternalServerError, status)
	assert.Equal(t, "the picture could not be blurred\n", text)
	assert.ErrorIs(t, ended(), driver.CUDA_ERROR_ILLEGAL_ADDRESS)
	control.Reset() // a real driver cannot recover
}
