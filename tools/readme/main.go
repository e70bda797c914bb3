// Command readme writes the generated parts of README.md and docs/*.md: tables
// computed from the headers and our own text, and Go code from programs that the
// tests run. A table stands between the lines <!-- name --> and <!-- end -->. Code
// follows a line that names the file and the declarations to show; without
// declarations it is the whole file:
//
//	<!-- go examples/samples/asyncapi.go workBeside -->
//
// It fails if a function or a type has no text.
package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/cudabind/cudabind/gen/doc"
	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/gen/parse"
	"github.com/cudabind/cudabind/headers"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "readme:", err)
		os.Exit(1)
	}
}

func run() error {
	without, err := writeTables()
	if err != nil {
		return err
	}
	pages, err := textFiles(".")
	if err != nil {
		return err
	}
	for _, page := range pages {
		if err := rewrite(page, func(text string) (string, error) { return replaceSnippets(text, ".") }); err != nil {
			return err
		}
	}
	if len(without) > 0 {
		return fmt.Errorf("%d functions and types have no text in gen/doc/text: %s", len(without), strings.Join(without, " "))
	}
	return nil
}

// writeTables also returns the functions and types that have no text.
func writeTables() (without []string, err error) {
	counts, err := versions()
	if err != nil {
		return nil, err
	}
	texts, without, err := documented()
	if err != nil {
		return nil, err
	}
	return without, rewrite(coverage, func(text string) (string, error) {
		text, err := replace(text, "versions", counts)
		if err != nil {
			return "", err
		}
		return replace(text, "documented", texts)
	})
}

// rewrite writes a file if it changes.
func rewrite(file string, change func(string) (string, error)) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	out, err := change(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if out == string(text) {
		return nil
	}
	return os.WriteFile(file, []byte(out), 0o666)
}

// documented is the table of what has text of ours, and the functions and types
// that have none.
func documented() (table string, without []string, err error) {
	var b strings.Builder
	b.WriteString("| package | functions: full | brief | none | types: text | none | values: text | none | members: text | none |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|\n")
	for _, p := range model.Packages() {
		release, err := headers.Lookup(p.Version)
		if library := model.RowOf(p.API).Fetch; library != "" && err == nil {
			release, err = release.WithRequested(library)
		}
		if err != nil {
			return "", nil, err
		}
		dir, err := release.Fetch(context.Background(), os.Stderr)
		if err != nil {
			return "", nil, err
		}
		a, err := parse.Parse(os.DirFS(dir), p.API)
		if err != nil {
			return "", nil, err
		}
		if err := model.Complete(a, model.Options{}); err != nil {
			return "", nil, err
		}
		c, err := doc.Cover(a)
		if err != nil {
			return "", nil, err
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %d | %d | %d | %d |\n", p.Name, c.Functions.Full, c.Functions.Sentence, c.Functions.None,
			c.Types.Full, c.Types.None, c.Values.Full, c.Values.None, c.Members.Full, c.Members.None)
		without = append(append(without, c.Functions.Without...), c.Types.Without...)
	}
	return b.String(), without, nil
}

// replace puts a part in its place.
func replace(text, name, part string) (string, error) {
	place := regexp.MustCompile(`(?s)(<!-- ` + name + ` -->\n).*?(<!-- end -->)`)
	if !place.MatchString(text) {
		return "", fmt.Errorf("there is no place for %q", name)
	}
	return place.ReplaceAllString(text, "${1}"+strings.ReplaceAll(part, "$", "$$")+"${2}"), nil
}

// versions is the table of what each pinned version declares.
func versions() (string, error) {
	var b strings.Builder
	b.WriteString("| CUDA | driver: functions | enums | structs | added | removed | runtime: functions | enums | structs | added | removed |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|\n")
	before := map[string]map[string]bool{}
	for _, r := range headers.Releases() {
		dir, err := headers.Fetch(context.Background(), r.Version, os.Stderr)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "| %s |", r.Version)
		for _, api := range []string{"driver", "runtime"} {
			a, err := parse.Parse(os.DirFS(dir), api)
			if err != nil {
				return "", err
			}
			now := symbols(a)
			gone, come := "", ""
			if old := before[api]; old != nil {
				come, gone = count(now, old), count(old, now)
			}
			before[api] = now
			fmt.Fprintf(&b, " %d | %d | %d | %s | %s |", len(a.Funcs), kinds(a, model.Enum), kinds(a, model.Struct, model.Union), come, gone)
		}
		b.WriteString("\n")
	}
	return b.String(), nil
}

func symbols(a *model.API) map[string]bool {
	m := map[string]bool{}
	for _, f := range a.Funcs {
		m[f.Symbol] = true
	}
	return m
}

// count is how many of a are not in b.
func count(a, b map[string]bool) string {
	n := 0
	for s := range a {
		if !b[s] {
			n++
		}
	}
	return fmt.Sprint(n)
}

func kinds(a *model.API, of ...model.DeclKind) int {
	n := 0
	for _, d := range a.Decls {
		for _, k := range of {
			if d.Kind == k && !d.Nested {
				n++
			}
		}
	}
	return n
}
