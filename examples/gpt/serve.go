package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/cudabind/cudabind/cuda/safe"
)

const (
	atOnce  = 128 // texts that are being written
	waiting = 256 // texts that wait for that; further ones are refused
)

// A text is being written: first the decoder reads the prompt, then it writes on.
type text struct {
	prompt      []byte
	length      int // tokens to write
	temperature float32
	place       int  // tokens that the decoder has got
	last        byte // the token that it is to get next
}

func newText(prompt []byte, length int, temperature float64, context int) (*text, error) {
	switch {
	case len(prompt) == 0:
		return nil, errors.New("the prompt is empty: give the text to write on from")
	case length < 1:
		return nil, fmt.Errorf("length %d: ask for at least 1 token", length)
	case length > context-len(prompt):
		return nil, fmt.Errorf("a prompt of %d bytes and %d tokens more do not fit into the model's context of %d: shorten the prompt, or ask for fewer", len(prompt), length, context)
	case !(temperature >= 0 && temperature <= 100):
		return nil, fmt.Errorf("temperature %v: must be from 0 to 100", temperature)
	}
	return &text{prompt: prompt, length: length, temperature: float32(temperature), last: prompt[0]}, nil
}

func (t *text) row(slot int) Row {
	return Row{Slot: int32(slot), Place: int32(t.place), Token: int32(t.last), Temperature: t.temperature}
}

// append takes what the decoder said follows the row. isNew says that it is no part of the prompt.
func (t *text) append(next int32) (token byte, isNew bool) {
	t.place++
	if t.place < len(t.prompt) {
		t.last = t.prompt[t.place]
		return t.last, false
	}
	t.last = byte(next)
	return t.last, true
}

func (t *text) done() bool { return t.place >= len(t.prompt)+t.length-1 }

// A request is a text for somebody, who reads its tokens at any pace: there is room for all.
type request struct {
	*text
	context context.Context // ends when nobody reads any more
	slot    int
	written chan byte // closed when the text is complete
}

// A server writes the texts of many requests by one decoder.
type server struct {
	decoder  *decoder
	free     []int         // slots
	waiting  chan struct{} // a value for each request that waits for a slot
	incoming chan *request // from those to run
	ended    chan struct{} // closed when run has returned
	err      error         // why, after that
}

func newServer(d *decoder) *server {
	s := &server{decoder: d, waiting: make(chan struct{}, waiting), incoming: make(chan *request), ended: make(chan struct{})}
	for slot := range d.slots {
		s.free = append(s.free, slot)
	}
	return s
}

// run writes texts until ctx ends or the GPU fails. Requests come and go between any two steps.
func (s *server) run(ctx context.Context) {
	defer close(s.ended)
	var texts []*request
	for s.err == nil {
		texts = slices.DeleteFunc(texts, s.leave)
		if texts, s.err = s.admit(ctx, texts); s.err == nil {
			s.err = s.step(ctx, texts)
		}
	}
}

// leave frees the slot of a request if it is done, or nobody reads it any more.
func (s *server) leave(r *request) bool {
	leaves := r.done() || r.context.Err() != nil
	if leaves {
		s.free = append(s.free, r.slot)
	}
	return leaves
}

// admit gives free slots to requests that wait. If no text is being written it waits for a request.
func (s *server) admit(ctx context.Context, texts []*request) ([]*request, error) {
	for len(s.free) > 0 {
		var r *request
		if len(texts) == 0 {
			select {
			case r = <-s.incoming:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		} else {
			select {
			case r = <-s.incoming:
			default:
				return texts, nil
			}
		}
		<-s.waiting
		if r.context.Err() == nil {
			last := len(s.free) - 1
			r.slot, s.free = s.free[last], s.free[:last]
			texts = append(texts, r)
		}
	}
	return texts, nil
}

// step writes a token of each text.
func (s *server) step(ctx context.Context, texts []*request) error {
	var rows []Row
	for _, r := range texts {
		rows = append(rows, r.row(r.slot))
	}
	next, err := s.decoder.step(ctx, rows)
	if err != nil {
		return err
	}
	for i, r := range texts {
		if token, isNew := r.append(next[i]); isNew {
			r.written <- token
		}
		if r.done() {
			close(r.written)
		}
	}
	return nil
}

//go:embed page.html
var page []byte

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(page)
	})
	mux.HandleFunc("POST /write", s.write)
	return mux
}

// write answers with what the model writes on from the body, a token when it is there. The form
// values length and temperature are optional.
func (s *server) write(w http.ResponseWriter, q *http.Request) {
	t, err := s.asked(w, q)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r := &request{text: t, context: q.Context(), written: make(chan byte, t.length)}
	select {
	case s.waiting <- struct{}{}:
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many texts are being written: try again later", http.StatusServiceUnavailable)
		return
	}
	select { // stream finds out which
	case s.incoming <- r: // admit takes the value
	case <-r.context.Done():
		<-s.waiting
	case <-s.ended:
		<-s.waiting
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !s.stream(w, r) {
		panic(http.ErrAbortHandler) // ends the connection, so that nobody takes a part for the whole
	}
}

// asked reads what a request asks for.
func (s *server) asked(w http.ResponseWriter, q *http.Request) (*text, error) {
	query := q.URL.Query()
	length, err := strconv.Atoi(cmp.Or(query.Get("length"), "200"))
	if err != nil {
		return nil, fmt.Errorf("length %q: must be a number of tokens", query.Get("length"))
	}
	temperature, err := strconv.ParseFloat(cmp.Or(query.Get("temperature"), "0.8"), 64)
	if err != nil {
		return nil, fmt.Errorf("temperature %q: must be a number from 0 to 100", query.Get("temperature"))
	}
	prompt, err := io.ReadAll(http.MaxBytesReader(w, q.Body, int64(s.decoder.Context)))
	if errors.As(err, new(*http.MaxBytesError)) {
		return nil, fmt.Errorf("the prompt does not fit into the model's context of %d: shorten it", s.decoder.Context)
	} else if err != nil {
		return nil, err
	}
	return newText(prompt, length, temperature, s.decoder.Context)
}

// stream sends the tokens of r as they come. It returns false if they are not all of its text.
func (s *server) stream(w http.ResponseWriter, r *request) bool {
	flush := http.NewResponseController(w)
	for {
		select {
		case token, more := <-r.written:
			if !more {
				return true
			}
			some := []byte{token}
			for range len(r.written) {
				some = append(some, <-r.written)
			}
			if _, err := w.Write(some); err != nil {
				return false
			}
			if err := flush.Flush(); err != nil {
				return false
			}
		case <-r.context.Done():
			return false
		case <-s.ended:
			return false
		}
	}
}

// serve serves the model over HTTP until ctx ends.
func serve(ctx context.Context, o options, w io.Writer) error {
	return loaded(ctx, o, atOnce, func(d *decoder) error {
		l, err := net.Listen("tcp", o.serve)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "http://%s\n", l.Addr())
		return newServer(d).serve(ctx, l)
	})
}

// serve serves until ctx ends, and then returns nil, or until something fails.
func (s *server) serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{
		Handler:        s.handler(),
		MaxHeaderBytes: 16 << 10,
		ReadTimeout:    10 * time.Second,
		WriteTimeout:   5 * time.Minute, // from the request on, for clients that stop to read
	}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() { stop(h.Serve(l)) }()
	s.run(running)
	ending, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if h.Shutdown(ending) != nil {
		h.Close()
	}
	if ctx.Err() != nil && !safe.IsFatal(s.err) {
		return nil
	}
	return s.err
}
