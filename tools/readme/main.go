// Command readme writes the tables of the README that come from the headers. A
// table stands between a line <!-- name --> and a line <!-- end -->.
package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/cudabind/cudabind/gen/model"
	"github.com/cudabind/cudabind/gen/parse"
	"github.com/cudabind/cudabind/headers"
)

func main() {
	if err := run("README.md"); err != nil {
		fmt.Fprintln(os.Stderr, "readme:", err)
		os.Exit(1)
	}
}

func run(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	table, err := versions()
	if err != nil {
		return err
	}
	out, err := replace(string(text), "versions", table)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if out == string(text) {
		return nil
	}
	return os.WriteFile(file, []byte(out), 0o666)
}

// replace puts a table in its place.
func replace(text, name, table string) (string, error) {
	place := regexp.MustCompile(`(?s)(<!-- ` + name + ` -->\n).*?(<!-- end -->)`)
	if !place.MatchString(text) {
		return "", fmt.Errorf("there is no place for the table %q", name)
	}
	return place.ReplaceAllString(text, "${1}"+strings.ReplaceAll(table, "$", "$$")+"${2}"), nil
}

// versions is the table of what each pinned version declares.
func versions() (string, error) {
	var b strings.Builder
	b.WriteString("| CUDA | driver: functions | enums | structs | new | gone | runtime: functions | enums | structs | new | gone |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|\n")
	before := map[string]map[string]bool{}
	for _, r := range headers.Releases() {
		dir, err := headers.Fetch(context.Background(), r.Version, os.Stderr)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "| %s |", r.Version)
		for _, api := range parse.APIs {
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
