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
	"strconv"
	"time"
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
		return nil, errors.New("the prompt is empty")
	case length < 1 || len(prompt)+length > context:
		return nil, fmt.Errorf("%d tokens of a prompt and %d more do not fit into a context of %d", len(prompt), length, context)
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
	context context.Context
	written chan byte // closed at the end
}

// A server writes the texts of many requests by one decoder.
type server struct {
	decoder  *decoder
	incoming chan *request
	ended    chan struct{} // closed when run has returned
	err      error         // why, after that
}

func newServer(d *decoder) *server {
	return &server{decoder: d, incoming: make(chan *request, waiting), ended: make(chan struct{})}
}

// run writes texts until ctx ends or the GPU fails. Requests come and go between any two steps.
func (s *server) run(ctx context.Context) {
	defer close(s.ended)
	slots := make([]*request, s.decoder.slots)
	defer func() {
		for _, r := range slots {
			if r != nil {
				close(r.written)
			}
		}
	}()
	for s.err == nil {
		if s.err = s.admit(ctx, slots); s.err == nil {
			s.err = s.step(ctx, slots)
		}
	}
}

// admit gives free slots to waiting requests. If all slots are free it waits for a request.
func (s *server) admit(ctx context.Context, slots []*request) error {
	busy := 0
	for i, r := range slots {
		if r != nil && r.context.Err() != nil { // nobody reads any more
			close(r.written)
			slots[i] = nil
		} else if r != nil {
			busy++
		}
	}
	for i := range slots {
		if slots[i] != nil {
			continue
		}
		if busy == 0 {
			select {
			case slots[i] = <-s.incoming:
			case <-ctx.Done():
				return ctx.Err()
			}
		} else {
			select {
			case slots[i] = <-s.incoming:
			default:
				return nil
			}
		}
		busy++
	}
	return nil
}

// step writes a token of each text.
func (s *server) step(ctx context.Context, slots []*request) error {
	var rows []Row
	for i, r := range slots {
		if r != nil {
			rows = append(rows, r.row(i))
		}
	}
	next, err := s.decoder.step(ctx, rows)
	if err != nil {
		return err
	}
	for i, row := range rows {
		r := slots[row.Slot]
		if token, isNew := r.append(next[i]); isNew {
			r.written <- token
		}
		if r.done() {
			close(r.written)
			slots[row.Slot] = nil
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
	prompt, err := io.ReadAll(http.MaxBytesReader(w, q.Body, int64(s.decoder.Context)))
	length, err2 := strconv.Atoi(cmp.Or(q.URL.Query().Get("length"), "200"))
	temperature, err3 := strconv.ParseFloat(cmp.Or(q.URL.Query().Get("temperature"), "0.8"), 64)
	if err = errors.Join(err, err2, err3); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	t, err := newText(prompt, length, temperature, s.decoder.Context)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r := &request{text: t, context: q.Context(), written: make(chan byte, length)}
	select {
	case s.incoming <- r:
	case <-s.ended:
		http.Error(w, "the server ends", http.StatusServiceUnavailable)
		return
	default:
		http.Error(w, "too many texts are being written: try again later", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	s.stream(w, r)
}

// stream sends the tokens of r as they come.
func (s *server) stream(w http.ResponseWriter, r *request) {
	flush := http.NewResponseController(w)
	for {
		select {
		case token, more := <-r.written:
			if !more {
				return
			}
			some := []byte{token}
			for len(r.written) > 0 {
				some = append(some, <-r.written)
			}
			if _, err := w.Write(some); err != nil {
				return
			}
			if err := flush.Flush(); err != nil {
				return
			}
		case <-r.context.Done():
			return
		case <-s.ended: // it may have ended before it saw r
			if len(r.written) == 0 {
				return
			}
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
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		s := newServer(d)
		h := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
		go s.run(ctx)
		go func() {
			<-s.ended
			ending, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			h.Shutdown(ending)
			h.Close()
		}()
		fmt.Fprintf(w, "http://%s\n", l.Addr())
		err = h.Serve(l)
		stop()
		<-s.ended
		if errors.Is(s.err, context.Canceled) && errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return errors.Join(err, s.err)
	})
}
