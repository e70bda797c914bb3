//go:build (cgo || cudabind_nocgo) && linux && (amd64 || arm64)

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cudabind/cudabind/cuda/generated/driver"
	"github.com/cudabind/cudabind/cuda/generated/nccl"
	"github.com/cudabind/cudabind/internal/command"
	"github.com/cudabind/cudabind/tools/simdriver/sim"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRank runs the contestant in Go on the simulated driver, with the double of NCCL. A process opens each library once.
func TestRank(t *testing.T) {
	opened.Do(func() { openDoubles(t) })
	t.Setenv("WORLD_SIZE", "2")
	var printed bytes.Buffer
	require.NoError(t, beRank(true, &printed))
	all, err := read(&printed)
	require.NoError(t, err)
	require.Len(t, all, 2)
	for i, p := range plans(true) {
		f := all[i]
		assert.Equal(t, p.bytes, f.Bytes)
		for _, k := range kinds {
			assert.Positive(t, k.of(&f), k.name)
		}
	}
}

var opened sync.Once

func openDoubles(t *testing.T) {
	dir := t.TempDir()
	file, err := sim.Build(dir, sim.Default)
	require.NoError(t, err)
	require.NoError(t, driver.Open(file))
	double := filepath.Join(dir, "libnccl.so.2")
	out, err := command.CC("-shared", "-fPIC", "-pthread", "-o", double, "../../../cuda/safe/collective/testdata/nccl/nccl.c", "-ldl").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, nccl.Open(double))
}

func TestMarkdown(t *testing.T) {
	var r results
	for _, wait := range []float64{10, 9, 500} {
		r.add(contestant{name: inC, mode: oneProcess}, []figures{{Bytes: 64 << 10, Wait: wait, Many: 1}})
	}
	r.add(contestant{name: inGo, mode: oneProcess}, []figures{{Bytes: 64 << 10, Wait: 12.34, Many: 250}, {Bytes: 8, Graph: 3}})
	text := r.markdown(2)
	for _, line := range []string{
		"2 GPUs, one process, in µs:",
		"| 8 B | graph, and wait |  |  | 3.0 |  |  |",
		"| 64 KiB | and wait | 9.0 to 500 |  | 12.3 | 1.37 |  |",
		"| 64 KiB | back to back | 1.0 |  | 250 | 250.00 |  |",
		"2 GPUs, a process for each GPU, in µs:",
	} {
		assert.Contains(t, text, line+"\n")
	}
	assert.NoError(t, r.missing([]contestant{{name: inGo, mode: oneProcess}}))
	assert.EqualError(t, r.missing([]contestant{{name: inTorch, mode: processes}}), "torch.distributed, a process for each GPU: no figures")
}

func TestReplace(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	require.NoError(t, os.WriteFile(page, []byte("a\n<!-- ranks 2 -->\nold\n<!-- end -->\nb\n"), 0o666))
	require.NoError(t, replace(page, 2, "new\n"))
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Equal(t, "a\n<!-- ranks 2 -->\nnew\n<!-- end -->\nb\n", string(text))
	assert.ErrorContains(t, replace(page, 4, ""), "has no")
}

// TestContestants: ranks learn who they are, one that fails ends the others, and one that hangs is killed.
func TestContestants(t *testing.T) {
	sh := func(m mode, text string) contestant {
		return contestant{name: "sh", mode: m, command: []string{"sh", "-c", text}}
	}
	for name, test := range map[string]struct {
		c    contestant
		want int // bytes of the figures
		says string
	}{
		"processes":   {sh(processes, `test "$LOCAL_RANK" = "$RANK" && echo "{\"bytes\":$((10 * WORLD_SIZE + RANK))}"`), 20, ""},
		"one process": {sh(oneProcess, `echo noise; test -z "$RANK" && echo "{\"bytes\":$WORLD_SIZE}"`), 2, ""},
		"one fails":   {sh(processes, `test $RANK = 0 && exec sleep 600; exit 3`), 0, "exit status 3"},
		"a hang":      {sh(processes, `exec sleep 600`), 0, "killed"},
		"no program":  {contestant{mode: oneProcess, command: []string{"/nowhere"}}, 0, "/nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr strings.Builder
			limit := time.Minute
			if name == "a hang" {
				limit = 3 * time.Second
			}
			all, err := test.c.run(2, limit, &stderr)
			if test.says == "" {
				require.NoError(t, err)
				require.Len(t, all, 1)
				assert.Equal(t, test.want, all[0].Bytes)
				return
			}
			assert.ErrorContains(t, err, test.says)
		})
	}
}

func TestArguments(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run([]string{"-source"}, &out, &out))
	assert.Contains(t, out.String(), "ncclAllReduce")
	for _, args := range [][]string{{"-gpus", "0"}, {"extra"}, {"-rounds", "0"}} {
		assert.Error(t, run(args, &out, &out), "%q", args)
	}
}
