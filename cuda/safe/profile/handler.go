package profile

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Handler returns a handler that records for a while and answers with the timeline. Give it a path of your server next
// to those of net/http/pprof:
//
//	http.Handle("/debug/cuda/trace", profile.Handler())
//
// The answer is a file that Perfetto opens: curl -o trace.json 'http://host/debug/cuda/trace?seconds=2'. seconds is at
// most 300, and 1 by default. format=text answers with the tables of [Timeline.WriteSummary]. The status is 409 while
// another recording or profiler is attached, and 501 if CUPTI is missing. Serve it only to people whom you trust: a
// recording names kernels, takes memory, and slows calls down. Launches take about 0.9 µs more until [Detach].
func Handler() http.Handler { return http.HandlerFunc(serve) }

func serve(w http.ResponseWriter, req *http.Request) {
	seconds := 1.0
	if text := req.FormValue("seconds"); text != "" {
		var err error
		if seconds, err = strconv.ParseFloat(text, 64); err != nil || !(seconds > 0 && seconds <= 300) {
			http.Error(w, "seconds is a number above 0, and 300 at most", http.StatusBadRequest)
			return
		}
	}
	format := req.FormValue("format")
	if format != "" && format != "text" && format != "json" {
		http.Error(w, "format is text or json", http.StatusBadRequest)
		return
	}
	duration := time.Duration(seconds * float64(time.Second))
	const more = time.Minute                                                            // to write the answer
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(duration + more)) // the server's may be shorter; not all have one
	r, err := Start(Options{})
	if err != nil {
		http.Error(w, err.Error(), statusOf(err))
		return
	}
	select {
	case <-time.After(duration):
	case <-req.Context().Done():
	}
	t, err := r.Stop()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if req.Context().Err() != nil { // who asked is gone
		return
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if format == "text" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_ = t.WriteSummary(w)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", "cuda-"+t.Started.Format("150405")+".json"))
	_ = t.WriteTrace(w)
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, ErrBusy):
		return http.StatusConflict
	case errors.Is(err, errors.ErrUnsupported):
		return http.StatusNotImplemented
	}
	return http.StatusInternalServerError
}
