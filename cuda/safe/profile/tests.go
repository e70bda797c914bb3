package profile

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

// Tests runs tests with an additional flag, -cudaprofile FILE, which records them all and writes the timeline to FILE
// and the tables to FILE.txt. It is all that TestMain needs:
//
//	func TestMain(m *testing.M) { os.Exit(profile.Tests(m)) }
//
// With the flag, tests that record by themselves get [ErrBusy].
func Tests(m interface{ Run() int }) int {
	file := flag.String("cudaprofile", "", "record the work of GPUs, and write the timeline to this `file`")
	flag.Parse()
	if *file == "" {
		return m.Run()
	}
	r, err := Start(Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, "-cudaprofile:", err)
		return 2
	}
	code := m.Run()
	t, err := r.Stop()
	if err == nil {
		err = t.writeFiles(*file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "-cudaprofile:", err)
		code = max(code, 1)
	}
	return code
}

// writeFiles writes the trace to a file, and the tables to one beside it.
func (t *Timeline) writeFiles(file string) error {
	trace, err := os.Create(file)
	if err != nil {
		return err
	}
	err = errors.Join(t.WriteTrace(trace), trace.Close())
	text, e := os.Create(file + ".txt")
	if e != nil {
		return errors.Join(err, e)
	}
	return errors.Join(err, t.WriteSummary(text), text.Close())
}
