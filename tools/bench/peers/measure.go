package main

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/cudabind/cudabind/internal/process"
)

// race has contestants do the same in turns.
type race struct {
	all   []*contestant
	short bool
	end   time.Time // after which rows are left out
	log   io.Writer
	*results
}

// start starts the contestants, and has them do all rows.
func (r *race) start(chosen [][]string) error {
	r.all = make([]*contestant, len(chosen))
	var ready sync.WaitGroup
	for i, command := range chosen {
		ready.Go(func() { r.all[i] = start(command[0], command[1:]...) })
	}
	ready.Wait()
	for _, c := range r.all {
		defer c.stop("")
	}
	r.admit()
	if r.GPU == "" {
		return fmt.Errorf("package safe takes no part, and the others are to stand beside it: %+v", r.Contestants)
	}
	r.run()
	return nil
}

// admit lists the contestants.
func (r *race) admit() {
	first := r.Contestants == nil
	for _, c := range r.all {
		if c.ready.GPU != "" {
			r.GPU, r.CUDA = c.ready.GPU, c.ready.CUDA
		}
		if first {
			r.Contestants = append(r.Contestants, participant{c.name, c.ready.Ready, c.absent})
		}
	}
}

// run measures all rows.
func (r *race) run() {
	for _, c := range r.all {
		if c.name == "safe" {
			r.Crossing = c.do("crossing", 0, 20).NS
		}
	}
	for _, row := range rows() {
		r.row(row)
	}
	for _, us := range waits {
		r.waits(us)
	}
	for _, workers := range crowds {
		if r.short {
			workers /= 32
		}
		r.crowd(workers)
	}
}

// over tells whether the time is up, and notes that the row is left out.
func (r *race) over(name string) bool {
	over := time.Now().After(r.end)
	if over {
		r.note(note{Contestant: "all", Row: name, Why: "no time left"})
	}
	return over
}

// turns has everybody do something, in rounds, a different one first each time. A contestant that
// gives no figure is not asked again.
func (r *race) turns(rounds int, name string, do func(c *contestant) bool) {
	if r.over(name) {
		return
	}
	if r.short {
		rounds = 1
	}
	out := map[string]bool{}
	for i := range rounds {
		for k := range r.all {
			c := r.all[(k+i)%len(r.all)]
			if !out[c.name] && c.absent == "" {
				out[c.name] = !do(c)
			}
		}
	}
	fmt.Fprintf(r.log, "%s\n", name)
}

func (r *race) row(row row) {
	ns, ms := map[string][]float64{}, row.ms
	if r.short {
		ms = 0.5
	}
	r.turns(row.rounds, row.name, func(c *contestant) bool {
		answer := c.do(row.item, row.arg, ms)
		if !r.valid(c, row.name, answer) {
			delete(ns, c.name)
			return false
		}
		ns[c.name] = append(ns[c.name], answer.NS)
		return true
	})
	r.add(row, ns)
}

// valid tells whether there is a figure, and notes why not.
func (r *race) valid(c *contestant, row string, answer reply) bool {
	why := answer.Absent
	if answer.Wrong {
		why = "wrong result"
	}
	if why != "" {
		r.note(note{c.name, row, why, true})
	}
	return why == ""
}

func (r *race) waits(us int) {
	rows := waitRows(us)
	samples, cpu := map[string][]float64{}, map[string][]float64{}
	r.turns(2, rows[0].name, func(c *contestant) bool {
		answer := c.do("wait", us, 0)
		if !r.valid(c, rows[0].name, answer) {
			return false
		}
		if len(answer.Samples) == 0 || slices.Min(answer.Samples) < float64(us) {
			r.note(note{c.name, rows[0].name, "it does not wait for the kernel", true})
			return false
		}
		for _, s := range answer.Samples {
			samples[c.name] = append(samples[c.name], 1e3*s)
		}
		cpu[c.name] = append(cpu[c.name], 1e3*answer.CPU)
		return true
	})
	p50, p99 := map[string][]float64{}, map[string][]float64{}
	for name, s := range samples {
		slices.Sort(s)
		p50[name], p99[name] = []float64{median(s)}, []float64{s[min(len(s)-1, len(s)*99/100)]}
	}
	r.add(rows[0], p50)
	r.add(rows[1], p99)
	r.add(rows[2], cpu)
}

func (r *race) crowd(workers int) {
	rows := crowdRows(workers)
	wall, cpu, more := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	r.turns(1, rows[0].name, func(c *contestant) bool {
		answer := c.do("many", workers, 2)
		if !r.valid(c, rows[0].name, answer) {
			return false
		}
		reps := max(2, min(50, int(1e3/max(answer.Wall/2, 0.5)))) // as many as take a second or so
		if reps < 50 {
			r.note(note{Contestant: c.name, Row: rows[0].name, Why: "fewer than 50 waits, scaled"})
		}
		answer, peak := c.crowd(workers, reps)
		if !r.valid(c, rows[0].name, answer) {
			return false
		}
		scale := 1e6 * 50 / float64(reps)
		wall[c.name] = append(wall[c.name], scale*answer.Wall)
		cpu[c.name] = append(cpu[c.name], scale*answer.CPU)
		more[c.name] = append(more[c.name], float64(peak))
		return true
	})
	r.add(rows[0], wall)
	r.add(rows[1], cpu)
	r.add(rows[2], more)
}

// crowd asks for workers, and counts how many threads more the process has meanwhile.
func (c *contestant) crowd(workers, reps int) (r reply, more int) {
	before, _ := process.Threads(c.command.Process.Pid) // 0 if it has ended
	done := make(chan reply)
	go func() { done <- c.do("many", workers, float64(reps)) }()
	for {
		select {
		case r = <-done:
			return r, more
		case <-time.After(4 * time.Millisecond):
			now, _ := process.Threads(c.command.Process.Pid)
			more = max(more, now-before)
		}
	}
}

// median is the middle of values, or the mean of the two in the middle.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
