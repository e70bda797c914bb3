//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cudabind/cudabind/cuda/safe"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMain is also the main function of children that a parent starts.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "-child-log") {
		main()
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "sim")
	if err == nil && os.Getenv("CUDABIND_SIM") == "" {
		var file string
		if file, err = sim.Build(dir, sim.Default); err == nil {
			os.Setenv("CUDABIND_SIM", file)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// runStorm runs the command on the simulated driver.
func runStorm(t *testing.T, args ...string) (faults int, said string) {
	t.Helper()
	o, err := parse(append([]string{"-sim", "-children", "1"}, args...))
	require.NoError(t, err)
	var out bytes.Buffer
	faults, err = storm(o, &out)
	require.NoError(t, err)
	return faults, out.String()
}

// passing are the profiles that TestStorm runs: all except raw, whose captures race with raw calls
// that package safe cannot see.
var passing = []string{"own", "default", "captures", "graphs", "memory", "lifetimes", "waits", "fault", "full", "devices", "libraries"}

// TestStorm runs random programs for a short time.
func TestStorm(t *testing.T) {
	seconds := "2"
	if testing.Short() {
		seconds = "0.3" // make storm runs more
	}
	for _, name := range passing {
		t.Run(name, func(t *testing.T) {
			faults, said := runStorm(t, "-seconds", seconds, "-profile", name, "-out", t.TempDir())
			assert.Zero(t, faults, said)
			assert.Regexp(t, `storm: [1-9]\d* programs, [1-9]\d* steps, \d+ captures`, said)
		})
	}
}

// TestOneAtLeast: a program runs even if the time is over before it can.
func TestOneAtLeast(t *testing.T) {
	faults, said := runStorm(t, "-seconds", "1e-9", "-profile", "own", "-out", t.TempDir())
	assert.Zero(t, faults, said)
	assert.Regexp(t, `storm: 1 programs, [1-9]\d* steps`, said)
}

// TestFailedBefore replays programs that have failed once on a GPU, for reasons that are not known. None
// of them has failed on the simulated driver: this tests that they still run.
func TestFailedBefore(t *testing.T) {
	files, err := filepath.Glob("testdata/failed/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			faults, said := runStorm(t, "-replay", file, "-times", "2", "-out", t.TempDir())
			assert.Zero(t, faults, said)
		})
	}
}

// TestPlanted plants steps that fail, one class of fault at a time, and tests that storm finds,
// shrinks and replays them.
func TestPlanted(t *testing.T) {
	for _, test := range []struct {
		plant string
		class string
		most  int // steps of the smallest program
		args  []string
	}{
		{"crash", crash, 1, nil},
		{"mismatch", mismatch, 1, nil},
		{"leak", leak, 1, nil},
		{"release", mismatch, 1, nil},
		{"hang", hang, 50, []string{"-hang", "3s", "-shrink", "27s", "-times", "1"}}, // every try takes as long as a hang, which no busy machine takes for a step
	} {
		t.Run(test.plant, func(t *testing.T) {
			if testing.Short() && test.plant == "hang" {
				t.Skip("it waits for programs that hang")
			}
			dir := t.TempDir()
			// A program that fails need not fail again at once.
			args := append([]string{"-seed", "1", "-seconds", "1", "-times", "5", "-shrink", "2m", "-profile", "own", "-plant", test.plant, "-out", dir}, test.args...)
			faults, said := runStorm(t, args...)
			require.NotZero(t, faults, said)
			assert.Contains(t, said, "FAULT "+test.class)
			assert.Contains(t, said, "plant."+test.plant, "it says what was under way")
			files, err := filepath.Glob(filepath.Join(dir, "*.json"))
			require.NoError(t, err)
			require.NotEmpty(t, files)
			small, err := readProgram(files[0])
			require.NoError(t, err)
			assert.LessOrEqual(t, small.steps(), test.most, "shrunk to what fails")
			assert.Positive(t, small.steps())
			log := files[0] + ".log"
			assert.FileExists(t, log)
			require.NoError(t, os.Remove(log))
			again, said := runStorm(t, append([]string{"-replay", files[0], "-times", "1", "-out", dir}, test.args...)...)
			assert.Equal(t, 1, again, said)
			text, err := os.ReadFile(log)
			require.NoError(t, err)
			assert.Contains(t, string(text), "plant."+test.plant)
			if test.class == crash || test.class == hang {
				assert.Contains(t, string(text), "\ngoroutine ", "all stacks")
			}
		})
	}
}

// TestGenerate tests that a seed determines the program.
func TestGenerate(t *testing.T) {
	for _, p := range profiles {
		a, b := generate(p, 7), generate(p, 7)
		assert.Equal(t, a, b)
		assert.NotEqual(t, a.Goroutines, generate(p, 8).Goroutines)
		file := filepath.Join(t.TempDir(), "program")
		require.NoError(t, a.save(file))
		read, err := readProgram(file)
		require.NoError(t, err)
		assert.Equal(t, a, read)
		for topic := range p.topics {
			assert.True(t, slices.ContainsFunc(sortedKinds(), func(k *kind) bool { return k.topic == topic }), "%s: no steps of topic %s", p.name, topic)
		}
	}
}

// TestRing tests that the log has the latest lines, even if it was not closed.
func TestRing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	r, err := openRing(file)
	require.NoError(t, err)
	first, second := r.lane(0), r.lane(1)
	for i := range 3 * laneLines {
		first.write("g0 s%d began own.work 5", i)
		first.write("g0 s%d ended own.work", i)
	}
	second.write("g1 s4 began own.check 8")
	lines := readRing(file)
	assert.Len(t, lines, laneLines+1)
	assert.Equal(t, []string{"g1 s4 began own.check 8"}, underWay(lines))
}

func TestExplained(t *testing.T) {
	bad := errors.New("bad")
	for _, test := range []struct {
		name string
		err  error
		also []error
		want bool
	}{
		{"none", nil, nil, true},
		{"closed", &safe.Error{Err: safe.ErrClosed}, nil, true},
		{"another", &safe.Error{Err: bad}, nil, false},
		{"of the kind", &safe.Error{Err: bad}, []error{bad}, true},
		{"joined", errors.Join(safe.ErrClosed, safe.ErrCapturing), nil, true},
		{"one of two", errors.Join(safe.ErrClosed, bad), nil, false},
		{"a fault", errors.Join(failf(lost, "a capture"), safe.ErrClosed), nil, false},
	} {
		assert.Equal(t, test.want, explained(test.err, test.also), test.name)
	}
}

// TestWithout tests that a step stays the same in a smaller program.
func TestWithout(t *testing.T) {
	made := generate(profileNamed("memory"), 3)
	small := without(made, func(_, at int, _ step) bool { return at%2 == 0 })
	require.Less(t, small.steps(), made.steps())
	for g, steps := range small.Goroutines {
		for i, s := range steps {
			assert.Equal(t, made.Goroutines[g][2*i+1], s)
		}
	}
}

// TestOwnFolder: without -out, programs that fail go to a new folder, which goes if there are none.
func TestOwnFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	p, other := &parent{options: &options{}}, &parent{options: &options{}}
	clean, err := p.prepare()
	require.NoError(t, err)
	clean2, err := other.prepare()
	require.NoError(t, err)
	assert.NotEqual(t, p.out, other.out)
	require.NoError(t, os.WriteFile(filepath.Join(other.out, "own-1.json"), nil, 0o600))
	clean()
	clean2()
	assert.NoDirExists(t, p.out)
	assert.FileExists(t, filepath.Join(other.out, "own-1.json"))
}
