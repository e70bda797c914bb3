package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLoad: the table has what a server does that writes 10 tokens, the first after 20 ms, and the
// others together after 18 ms more. The clock of a bubble stands still but for these pauses; in it are no sockets.
func TestLoad(t *testing.T) {
	usual := client.Transport
	defer func() { client.Transport = usual }()
	synctest.Test(t, func(t *testing.T) {
		connections := make(pipes)
		s := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			prompt, _ := io.ReadAll(q.Body)
			assert.Equal(t, "POST /write?length=10&temperature=0.5 func", q.Method+" "+q.URL.String()+" "+string(prompt))
			time.Sleep(20 * time.Millisecond)
			io.WriteString(w, "1")
			w.(http.Flusher).Flush()
			time.Sleep(18 * time.Millisecond)
			io.WriteString(w, "234567890")
		})}
		go s.Serve(connections)
		defer s.Close()
		transport := &http.Transport{DialContext: connections.dial, MaxIdleConnsPerHost: 10}
		defer transport.CloseIdleConnections()
		client.Transport = transport
		o := options{url: "http://server", prompt: "func", clients: []int{1, 3}, length: 10, temperature: 0.5, time: 200 * time.Millisecond}
		var table strings.Builder
		require.NoError(t, run(t.Context(), o, &table))
		assert.Equal(t, "| clients | tokens/s | ms to the first token, median | p99 | ms a token, median | p99 |\n|--:|--:|--:|--:|--:|--:|\n"+
			"| 1 | 250 | 20.00 | 20.00 | 2.000 | 2.000 |\n| 3 | 750 | 20.00 | 20.00 | 2.000 | 2.000 |\n", table.String())
	})
}

// pipes listens for connections within the process.
type pipes chan net.Conn

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	server, client := net.Pipe()
	p <- server
	return client, nil
}

func (p pipes) Accept() (net.Conn, error) {
	if c, open := <-p; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestLoadAtOnce: where all tokens come together there are no times between them.
func TestLoadAtOnce(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "1234567890") }))
	defer s.Close()
	for _, d := range []time.Duration{50 * time.Millisecond, time.Nanosecond} { // which is over before a client has begun
		var table strings.Builder
		require.NoError(t, run(t.Context(), options{url: s.URL, clients: []int{1}, length: 10, time: d}, &table))
		assert.Regexp(t, `\n\| 1 \| \d+ \| \d+\.\d\d \| \d+\.\d\d \| NaN \| NaN \|\n$`, table.String())
	}
}

// TestLoadFails: a part of a text and a refusal are errors.
func TestLoadFails(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		want   string
	}{
		{"a part", http.StatusOK, "got 4 tokens of 10"},
		{"a refusal", http.StatusServiceUnavailable, "503 Service Unavailable: part"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				io.WriteString(w, "part")
			}))
			defer s.Close()
			err := run(t.Context(), options{url: s.URL, clients: []int{1}, length: 10}, io.Discard)
			assert.EqualError(t, err, c.want)
		})
	}
}

func TestQuantile(t *testing.T) {
	values := []float64{5, 1, 4, 2, 3}
	assert.Equal(t, 3.0, quantile(values, 0.5))
	assert.Equal(t, 5.0, quantile(values, 0.99))
	assert.Equal(t, 7.0, quantile([]float64{7}, 0.99))
}
