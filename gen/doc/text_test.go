package doc

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cudabind/cudabind/gen/model"
)

// declared is everything that any pinned version declares.
type declared struct {
	params  map[string]map[string]bool // of a function, all variants together
	members map[string]map[string]bool // of a type: enumerators and fields
	values  map[string]bool            // enumerators and constants
}

// everything is what the pinned versions declare.
func everything(t *testing.T) declared {
	t.Helper()
	d := declared{map[string]map[string]bool{}, map[string]map[string]bool{}, map[string]bool{}}
	for _, a := range pinned(t) {
		d.add(a)
	}
	return d
}

func (d declared) add(a *model.API) {
	into := func(m map[string]map[string]bool, key string) map[string]bool {
		if m[key] == nil {
			m[key] = map[string]bool{}
		}
		return m[key]
	}
	for _, f := range a.Funcs {
		base, _, _ := model.Base(f.Symbol)
		for _, key := range []string{f.Symbol, base} {
			names := into(d.params, key)
			for _, p := range f.Params {
				names[p.C] = true
			}
		}
	}
	for _, decl := range a.Decls {
		if decl.Nested {
			continue
		}
		plain, _, _ := model.Base(model.BareName(decl.C))
		for _, key := range []string{model.BareName(decl.C), plain} {
			names := into(d.members, key)
			for _, e := range decl.Enumerators {
				names[e.C], d.values[e.C] = true, true
			}
			memberPaths(decl, "", names)
		}
	}
	for _, al := range a.Aliases {
		if al.Func {
			for name := range into(d.params, al.Target) {
				into(d.params, al.C)[name] = true
			}
		} else {
			maps.Copy(into(d.members, model.BareName(al.C)), d.members[model.BareName(al.Target)])
		}
	}
	for _, c := range a.Consts {
		d.values[c.C] = true
	}
}

func memberPaths(d *model.Decl, prefix string, into map[string]bool) {
	for _, f := range d.Fields {
		at := prefix
		if f.C != "" {
			at += f.C
			into[at] = true
			at += "."
		}
		t := f.Type
		if t.Kind == model.Array {
			t = t.Elem
		}
		if t.Kind == model.Named && t.Decl.Nested {
			memberPaths(t.Decl, at, into)
		}
	}
}

// TestText checks that every entry is about something that exists, under the
// names that exist.
func TestText(t *testing.T) {
	d := everything(t)
	all, err := texts()
	require.NoError(t, err)
	for key, e := range all {
		api := apiOf(key)
		_, isFunc := d.params[key]
		members, isType := d.members[key]
		if !isFunc && !isType && !d.values[key] {
			t.Errorf("%s: no pinned version has %s", e.pos, key)
			continue
		}
		for _, p := range e.params {
			name := forAPI(p.name, api)
			inFamily := name == "" || slices.ContainsFunc(e.keys, func(k string) bool { return apiOf(k) == api && d.params[k][name] })
			assert.Truef(t, inFamily, "%s: %s has no parameter %s", e.pos, key, name)
		}
		for _, m := range slices.Concat(e.values, e.fields) {
			name := forAPI(m.name, api)
			assert.Truef(t, name == "" || members[name], "%s: %s has no member %s", e.pos, key, name)
		}
		for _, p := range e.errors {
			assert.Truef(t, d.values[forAPI(p.name, api)] || d.values[p.name], "%s: no pinned version has the code %s", e.pos, p.name)
		}
		for _, text := range e.all() {
			for _, m := range link.FindAllStringSubmatch(forAPI(text, api), -1) {
				_, f := d.params[m[1]]
				_, ty := d.members[strings.TrimPrefix(m[1], "New")] // NewT allocates a T that C wants aligned
				assert.Truef(t, f || ty || d.values[m[1]], "%s: %s: nothing is called [%s]", e.pos, key, m[1])
			}
		}
	}
}

// swallowed is an item that does not begin a line, and so has become part of the text before it.
var swallowed = regexp.MustCompile(`\b(?:param|error|value|field) (?:\{\w+\|\w*\}|[A-Z][A-Z0-9]*_\w+):`)

// TestTextSwallowsNothing: every item of an entry begins a line.
func TestTextSwallowsNothing(t *testing.T) {
	all, err := texts()
	require.NoError(t, err)
	for key, e := range all {
		for _, text := range e.all() {
			assert.NotRegexp(t, swallowed, text, "%s: %s", e.pos, key)
		}
	}
}

// TestTextIsDistinct checks that no entry is a copy of another with the names
// changed.
func TestTextIsDistinct(t *testing.T) {
	all, err := texts()
	require.NoError(t, err)
	names := regexp.MustCompile(`\[\w+\]|\b\w*[A-Z_0-9]\w*\b|[^a-z ]`)
	digits := regexp.MustCompile(`\d+`) // cuMemsetD16 and cuMemsetD32 are variants of one function
	seen := map[string]*entry{}
	for _, e := range all {
		text := strings.Join(strings.Fields(names.ReplaceAllString(e.summary+" "+strings.Join(e.body, " "), "")), " ")
		if other := seen[text]; other != nil && other != e && digits.ReplaceAllString(other.keys[0], "") != digits.ReplaceAllString(e.keys[0], "") {
			t.Errorf("%s and %s say the same of %s and %s", e.pos, other.pos, e.keys[0], other.keys[0])
		}
		seen[text] = e
	}
}

// driversOwn is a name of the driver's in a sentence that says so.
var driversOwn = regexp.MustCompile(`[Dd]river(?: API)?(?:'s| calls)[^.\[(]* \[(cu\w+|CU\w+)\]`)

// TestDriversNames: where a runtime package speaks of the driver's own name, that is no link, which
// would become the runtime's name.
func TestDriversNames(t *testing.T) {
	all, err := texts()
	require.NoError(t, err)
	n := 0
	for key, e := range all {
		if apiOf(key) != "runtime" {
			continue
		}
		for _, text := range e.all() {
			for _, m := range driversOwn.FindAllStringSubmatch(forAPI(text, "runtime"), -1) {
				twin := apiOf(m[1]) == "driver" && all[m[1]] != nil && slices.ContainsFunc(all[m[1]].keys, func(k string) bool { return apiOf(k) == "runtime" })
				assert.Falsef(t, twin, "%s: %s: [%s] becomes the runtime's: write it without brackets", e.pos, key, m[1])
				n++
			}
		}
	}
	assert.Positive(t, n)
}

// TestRuntimeLinks: a runtime package links to its own function where the driver's has the same
// name, and not to the driver's.
func TestRuntimeLinks(t *testing.T) {
	all, err := texts()
	require.NoError(t, err)
	twin := func(c string) bool {
		return all[c] != nil && slices.ContainsFunc(all[c].keys, func(k string) bool { return apiOf(k) == "runtime" })
	}
	for key, e := range all {
		if apiOf(key) != "runtime" {
			continue
		}
		for _, text := range e.all() {
			for _, m := range link.FindAllStringSubmatch(forAPI(text, "runtime"), -1) {
				name, ofDriver := strings.CutPrefix(m[1], "cu")
				if ofDriver && apiOf(m[1]) == "driver" && !twin(m[1]) {
					assert.Nilf(t, all["cuda"+name], "%s: %s: [%s] links to the driver: write {[%s]|[cuda%s]}", e.pos, key, m[1], m[1], name)
				}
			}
		}
	}
}

// TestTextSaysSomething refuses sentences without content.
func TestTextSaysSomething(t *testing.T) {
	all, err := texts()
	require.NoError(t, err)
	for key, e := range all {
		assert.NotRegexp(t, `(?i)^(wraps|calls|binds) cu`, e.summary, "%s: %s", e.pos, key)
		for _, i := range e.errors { // they come last in the comment
			assert.NotRegexp(t, `\b(see|said|told) below\b`, i.text, "%s: what %s says of %s stands above", e.pos, key, i.name)
		}
		for _, text := range slices.Concat(e.order, e.capture, e.golang) {
			assert.NotRegexp(t, `\b(code|error) above\b`, text, "%s: the errors of %s stand below", e.pos, key)
		}
		assert.Greater(t, len(strings.Fields(e.summary)), 2, "%s: %s is too short", e.pos, key)
		assert.Regexp(t, `[.:]$`, e.summary, "%s: the first paragraph of %s ends in a full stop", e.pos, key)
	}
}

func TestParseTextErrors(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"text before an entry", "\tlost\n", "before the first entry"},
		{"no sentence", "cuX\n\tparam a: b\n", "cuX has no first sentence"},
		{"empty entry", "cuX\ncuY\n\tdoes.\n", "cuX has no first sentence"},
		{"key that is no name", "cu-X\n\tdoes.\n", "want the C names"},
		{"empty section", "cuX\n\tdoes.\n\tparam a:\n", "says nothing"},
		{"list after the prototype", "cuX\n\tdoes.\n\n\t- an item\n", "x.txt:1: cuX: a list after code"},
		{"list after code", "cuX\n\tdoes.\n\n\tSo:\n\n\t\tcode()\n\n\t- an item\n", "x.txt:1: cuX: a list after code"},
		{"said twice", "cuX\n\tdoes.\n\tparam a: b\n\tparam a: c\n", "says twice"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseText("x.txt", tt.text)
			require.ErrorContains(t, err, tt.want)
			assert.ErrorContains(t, err, "x.txt:")
		})
	}
}

func TestParseText(t *testing.T) {
	got, err := parseText("x.txt", `# A note.

cuA cudaA
	does {this|that}
	and more.

	A paragraph
	of two lines.
	- an item
	- another

		code()
			more()

	param p: text
		that goes on
	order: first

	second
	go: pin it
cuB
	is.
`)
	require.NoError(t, err)
	require.Len(t, got, 2)
	assert.Equal(t, &entry{
		keys: []string{"cuA", "cudaA"}, pos: "x.txt:3", summary: "does {this|that} and more.",
		body:   []string{"A paragraph of two lines.", "- an item", "- another", "\tcode()\n\t\tmore()"},
		params: []item{{"p", "text that goes on"}}, order: []string{"first", "second"}, golang: []string{"pin it"},
	}, got[0])
	assert.Equal(t, "does that and more.", forAPI(got[0].summary, "runtime"))
}

// Code in a text picks the reading of the API, too.
func TestCodeReading(t *testing.T) {
	for api, want := range map[string]string{"driver": "\tmode := CU_ONE", "runtime": "\tmode := CudaOne"} {
		c := &comment{links: &links{}, api: api}
		c.blocks([]string{"\tmode := {CU_ONE|CudaOne}"})
		assert.Equal(t, []string{want}, c.lines, api)
	}
}
