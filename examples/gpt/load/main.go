// Command load measures a server of texts, such as that of examples/gpt:
//
//	go run github.com/cudabind/cudabind/examples/gpt/load -url http://localhost:8080
//
// Clients ask for texts one after the other, by POST /write?length=..&temperature=.. with the prompt
// as the body, and read them as they come. It prints a table in Markdown: how many tokens all clients
// got each second, how long each text took to begin, and how long it took from one token to the next.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

type options struct {
	url, prompt string
	clients     []int
	length      int
	temperature float64
	time        time.Duration // for each number of clients
}

func main() {
	log.SetFlags(0)
	o, clients := options{}, ""
	flag.StringVar(&o.url, "url", "http://localhost:8080", "the `address` of the server")
	flag.StringVar(&o.prompt, "prompt", "func main() {\n", "the `text` to write on from")
	flag.StringVar(&clients, "clients", "1,16,128", "`numbers` of clients")
	flag.IntVar(&o.length, "length", 200, "number of `tokens` of each text, a byte each")
	flag.Float64Var(&o.temperature, "temperature", 0.8, "how freely the model writes")
	flag.DurationVar(&o.time, "time", 10*time.Second, "how long to measure each number of clients")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("load: unexpected argument %q", flag.Arg(0))
	}
	for _, field := range strings.Split(clients, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 {
			log.Fatalf("load: -clients %q: must be numbers with commas between them", clients)
		}
		o.clients = append(o.clients, n)
	}
	if o.length < 2 {
		log.Fatal("load: -length must be at least 2, for times between tokens")
	}
	if o.time <= 0 {
		log.Fatal("load: -time must be more than 0")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		log.Fatal("load: ", err)
	}
}

func run(ctx context.Context, o options, w io.Writer) error {
	if _, err := one(ctx, o); err != nil { // warms up
		return err
	}
	fmt.Fprintf(w, "| clients | tokens/s | ms to the first token, median | p99 | ms a token, median | p99 |\n|--:|--:|--:|--:|--:|--:|\n")
	for _, n := range o.clients {
		m, err := many(ctx, o, n)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "| %d | %.0f | %.2f | %.2f | %.3f | %.3f |\n", n, m.tokensASecond,
			quantile(m.first, 0.5), quantile(m.first, 0.99), quantile(m.each, 0.5), quantile(m.each, 0.99))
	}
	return nil
}

// A measurement is what clients have seen, in milliseconds.
type measurement struct {
	tokensASecond float64
	first         []float64 // from the request to the first token
	each          []float64 // from a token to the next
}

// many measures n clients, which ask for a text each at least. Texts that have begun when the time is over are read to their end, and
// count for the latencies, but not for the throughput.
func many(ctx context.Context, o options, n int) (all measurement, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var lock sync.Mutex
	var clients sync.WaitGroup
	begin, tokens := time.Now(), 0
	end := begin.Add(o.time)
	for range n {
		clients.Go(func() {
			for first := true; first || time.Now().Before(end); first = false {
				t, err := one(ctx, o)
				if err != nil {
					cancel(err)
					return
				}
				lock.Lock()
				for i, at := range t.at {
					if at.After(end) {
						break
					}
					tokens += t.n[i]
				}
				all.add(t)
				lock.Unlock()
			}
		})
	}
	clients.Wait()
	all.tokensASecond = float64(tokens) / o.time.Seconds()
	return all, context.Cause(ctx)
}

// A text came in parts: n tokens each at a time.
type text struct {
	asked time.Time
	at    []time.Time
	n     []int
}

// add adds the latencies of a text. Tokens that came together have equal parts of the time.
func (m *measurement) add(t text) {
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	m.first = append(m.first, ms(t.at[0].Sub(t.asked)))
	for i := 1; i < len(t.at); i++ {
		for range t.n[i] {
			m.each = append(m.each, ms(t.at[i].Sub(t.at[i-1]))/float64(t.n[i]))
		}
	}
}

var client = http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1 << 10}}

// one asks for a text and reads it.
func one(ctx context.Context, o options) (t text, err error) {
	query := url.Values{"length": {strconv.Itoa(o.length)}, "temperature": {fmt.Sprint(o.temperature)}}
	q, err := http.NewRequestWithContext(ctx, "POST", o.url+"/write?"+query.Encode(), strings.NewReader(o.prompt))
	if err != nil {
		return t, err
	}
	t.asked = time.Now()
	answer, err := client.Do(q)
	if err != nil {
		return t, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		message, _ := io.ReadAll(io.LimitReader(answer.Body, 1000))
		return t, fmt.Errorf("%s: %s", answer.Status, message)
	}
	part, sum := make([]byte, 4096), 0
	for {
		n, err := answer.Body.Read(part)
		if n > 0 {
			t.at, t.n, sum = append(t.at, time.Now()), append(t.n, n), sum+n
		}
		if err == io.EOF && sum == o.length {
			return t, nil
		} else if err == io.EOF {
			return t, fmt.Errorf("got %d tokens of %d", sum, o.length)
		} else if err != nil {
			return t, err
		}
	}
}

// quantile returns the value below which a part of all values are, and no number if there are none.
func quantile(values []float64, part float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	return values[min(int(part*float64(len(values))), len(values)-1)]
}
