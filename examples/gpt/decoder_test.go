//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/safe/dtype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// modelFile writes a tiny model. Its numbers are random and large, so that each token depends on all
// before. On a GPU sums are rounded in another way for each number of rows: there it has learned
// lines, and is sure of what follows.
func modelFile(t *testing.T) string {
	o := tinyOptions(t)
	if onGPU {
		o.steps, o.sequences = 300, 8
		tr := newTraining(t, open(t), o)
		require.NoError(t, tr.run(o.steps))
		require.NoError(t, tr.wait(t.Context()))
		c, err := tr.checkpoint()
		require.NoError(t, err)
		require.NoError(t, c.write(o.model))
		return o.model
	}
	r, n := rand.New(rand.NewPCG(1, 2)), tiny.parameters()
	c := &checkpoint{header: header{Shape: tiny}, Parameters: make([]float32, n), First: make([]float32, n), Second: make([]float32, n)}
	for i := range c.Parameters {
		c.Parameters[i] = float32(r.NormFloat64() / 4)
	}
	require.NoError(t, c.write(o.model))
	return o.model
}

// decoding calls f with a decoder of the model in a file, and then looks for leaks.
func decoding(t *testing.T, file string, slots int, f func(*decoder)) {
	leavesNothing(t)
	require.NoError(t, loaded(t.Context(), options{model: file, seed: 1}, slots, func(d *decoder) error {
		f(d)
		return nil
	}))
}

// A wish is a text that is asked for, with temperature 0.
type wish struct {
	prompt string
	length int
}

func wishes(n int) (all []wish) {
	for i := range n {
		all = append(all, wish{string(lines[i:][:5+i*5%7]), 3 + i*11%8})
	}
	return all
}

// alone returns each text as a decoder writes it that writes nothing else.
func alone(t *testing.T, file string, wishes []wish) (texts []string) {
	decoding(t, file, 1, func(d *decoder) {
		for _, w := range wishes {
			texts = append(texts, together(t, d, []wish{w}, 0)[0])
		}
	})
	return texts
}

// together returns what d writes for all wishes. Each text begins some steps after that before it.
func together(t *testing.T, d *decoder, wishes []wish, apart int) []string {
	written, texts := make([]string, len(wishes)), make([]*text, len(wishes))
	for i, w := range wishes {
		var err error
		texts[i], err = newText([]byte(w.prompt), w.length, 0, d.Context)
		require.NoError(t, err)
	}
	slot := func(i int) int { return d.slots - 1 - i }
	for step := 0; slices.ContainsFunc(texts, func(t *text) bool { return !t.done() }); step++ {
		var rows []Row
		for i, text := range texts {
			if step >= i*apart && !text.done() {
				rows = append(rows, text.row(slot(i)))
			}
		}
		next, err := d.step(t.Context(), rows)
		require.NoError(t, err)
		for j, row := range rows {
			i := slot(int(row.Slot))
			if token, isNew := texts[i].append(next[j]); isNew {
				written[i] += string([]byte{token})
			}
		}
	}
	return written
}

// TestDecoder: texts at different places of different slots become what each does alone, with the
// graph of each size.
func TestDecoder(t *testing.T) {
	file := modelFile(t)
	all := wishes(33)
	want := alone(t, file, all)
	decoding(t, file, 33, func(d *decoder) {
		var sizes []int
		for _, s := range d.steps {
			sizes = append(sizes, s.size)
		}
		assert.Equal(t, []int{1, 8, 32, 33}, sizes)
		for n, apart := range map[int]int{2: 3, 8: 1, 10: 1, 33: 0} {
			for i, text := range together(t, d, all[:n], apart) {
				assert.Equal(t, want[i], text, "text %d of %d", i, n)
			}
		}
		_, err := d.step(t.Context(), make([]Row, 34))
		assert.EqualError(t, err, "34 texts are more than 33")
	})
	assert.Greater(t, len(distinct(want)), 20, "the model writes the same for many prompts")
}

func distinct(texts []string) map[string]bool {
	all := map[string]bool{}
	for _, text := range texts {
		all[text] = true
	}
	return all
}

// TestTemperature: tokens are drawn by their probabilities, which are softmax(scores / temperature),
// by other random numbers in each row and step.
func TestTemperature(t *testing.T) {
	decoding(t, modelFile(t), 8, func(d *decoder) {
		const steps, heat = 50, 2
		rows := make([]Row, d.slots)
		for i := range rows {
			rows[i] = Row{Slot: int32(i), Token: 'f', Temperature: heat}
		}
		drawn, same := make([]float64, tokens), 0
		for range steps {
			next, err := d.step(t.Context(), rows)
			require.NoError(t, err)
			for i, token := range next {
				drawn[token]++
				if i > 0 && token == next[i-1] {
					same++
				}
			}
		}
		scores, err := d.scores.Buffer.Download()
		require.NoError(t, err)
		score := dtype.Float32s(scores[:tokens])
		for i := range score {
			score[i] /= heat
		}
		p, _ := softmax(score)
		for token, n := range drawn {
			want := float64(p[token]) * steps * float64(d.slots)
			assert.InDelta(t, want, n, 3+5*math.Sqrt(want), "token %d", token)
		}
		assert.Less(t, same, steps*(d.slots-1)*9/10)
	})
	decoding(t, modelFile(t), 1, func(d *decoder) { // whose graph draws one random number
		seen := map[int32]bool{}
		for range 50 {
			next, err := d.step(t.Context(), []Row{{Token: 'f', Temperature: 2}})
			require.NoError(t, err)
			seen[next[0]] = true
		}
		assert.Greater(t, len(seen), 5)
	})
}

// TestWriteFails makes a driver call fail once, then another, from opening the GPU to closing it. Either
// an error says so, or the text is right. All that can be released is.
func TestWriteFails(t *testing.T) {
	simulated(t)
	leavesNothing(t)
	eventually(t, func() bool { return control.Live("") == 0 }, "else the failure may meet the rest of another test")
	const step = 7 // the calls of the layers are alike
	o := options{model: modelFile(t), prompt: "f", length: 1, seed: 1}
	var want strings.Builder
	require.NoError(t, run(t.Context(), o, &want))
	for n, failed := 1, "none yet"; failed != ""; n += step {
		control.Fail("", n, uint32(driver.CUDA_ERROR_UNKNOWN))
		var got strings.Builder
		err := run(t.Context(), o, &got)
		failed = control.Failed()
		control.Reset()
		if err == nil {
			assert.Equal(t, want.String(), got.String(), "call %d, %s", n, failed)
		}
		if strings.Contains(failed, "Destroy") || failed == "cuLibraryUnload" { // CUDA may have kept it
			eventually(t, func() bool { return control.Live("") <= 1 }, "at most one object is left")
			control.Purge()
			continue
		}
		require.Eventually(t, func() bool { runtime.GC(); return control.Live("") == 0 }, time.Minute, time.Millisecond, "after call %d, %s: %s", n, failed, control.List())
	}
}
