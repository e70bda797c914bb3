// Provenance fails when a file of the repository repeats what a comment of
// NVIDIA's CUDA headers says.
//
//	go run ./tools/provenance [-headers DIR] [-repo DIR]
//
// The headers are proprietary. Names, signatures, numbers and layouts are
// facts, and the repository may hold them; the sentences of the comments it
// may not. Compared are all files that git tracks, or would if they were
// added, with all fetched headers of all pinned versions.
//
// # What counts as a copy
//
// A run of 8 words that also stand in a row in one comment of a header, if at
// least 5 of them are prose. Only words are compared: case, punctuation, line
// ends, markup and the signs of comments and strings make no difference.
//
// A word is prose if it is spelled like one of English: letters alone, all in
// lower case, all in upper case or with a capital in front, which streamCount,
// MAX_THREADS and dim3 are not. Single letters but "a" are no prose, nor are
// the C words that declarations consist of. How the header spells the word
// decides, so that a copy in other case is judged alike.
//
// The rule asks for more than half because in prototypes and structures each
// name, although it may be English ("flags"), stands beside its type: half is
// the most they reach. Lists of constants have no prose at all. A sentence
// about identifiers has its verbs and articles between them. Measured: all the
// code of the pinned headers, taken for files of ours, has no such run; of the
// 4,736 sentences of cuda.h in CUDA 13.5 (8 words or more, 4 or more of them
// prose) 4,721 have one, and 11 of the other 15 are listings of code.
//
// Comments of fewer than 8 words are too short to tell a copy by.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "provenance:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("provenance", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("headers", "", "compare with the headers in `DIR`, one sub-folder a CUDA version (default: the fetched ones)")
	repo := flags.String("repo", ".", "check the files of the git work tree `DIR`")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	x, err := load(*dir)
	if err != nil {
		return err
	}
	files, err := listFiles(*repo)
	if err != nil {
		return err
	}
	total := 0
	for _, name := range files {
		if name == "LICENSE" {
			continue // of words that many share
		}
		text, err := readText(filepath.Join(*repo, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		copies := x.find(text)
		for _, c := range copies {
			fmt.Fprintf(stdout, "%s:%d: %s\n", name, c.line, c)
		}
		total += len(copies)
	}
	if total > 0 {
		return fmt.Errorf("%d passages are those of NVIDIA's headers: say it in other words", total)
	}
	fmt.Fprintf(stderr, "provenance: %d files share no sentence with %d CUDA headers\n", len(files), len(x.headers))
	return nil
}
