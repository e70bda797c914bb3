package drivertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"runtime/debug"
	"testing"
)

// An Argument is a value that a function is called with.
type Argument struct {
	value  reflect.Value
	usable bool
}

// Arguments are the values by type that tests call everything exported with: a library returns errors for
// values that make no sense, and never panics. Nil and zero values, and negative and huge numbers, come
// by themselves.
type Arguments map[reflect.Type][]Argument

// Usable adds values with which calls may succeed. A call gets at least one other value.
func (a Arguments) Usable(values ...any) { a.add(true, values) }

// Unusable adds values with which no call may succeed, such as closed objects.
func (a Arguments) Unusable(values ...any) { a.add(false, values) }

func (a Arguments) add(usable bool, values []any) {
	for _, v := range values {
		a[reflect.TypeOf(v)] = append(a[reflect.TypeOf(v)], Argument{reflect.ValueOf(v), usable})
	}
}

// of returns the values of a type.
func (a Arguments) of(t reflect.Type) []Argument {
	all := []Argument{{reflect.Zero(t), false}}
	switch t.Kind() {
	case reflect.Pointer:
		all = append(all, Argument{reflect.New(t.Elem()), false})
	case reflect.Slice:
		all = append(all, Argument{reflect.MakeSlice(t, 1, 1), false})
	case reflect.Int:
		all = []Argument{{reflect.Zero(t), true}}
		for _, n := range []int64{-1, 3, 1 << 40, -1 << 63, 1<<63 - 1} {
			all = append(all, Argument{reflect.ValueOf(n).Convert(t), false})
		}
	case reflect.Interface: // values of all types that implement it
		for of, values := range a {
			if of.Implements(t) {
				all = append(all, values...)
			}
		}
		if t == reflect.TypeFor[context.Context]() {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			all = append(all, Argument{reflect.ValueOf(context.Background()), true}, Argument{reflect.ValueOf(ended), false})
		}
	}
	return append(all, a[t]...)
}

// most is how many calls of one function are made. If there are more combinations, they are drawn.
const most = 2000

// Call calls a function with combinations of arguments, and fails the test if it panics.
func (a Arguments) Call(t *testing.T, name string, f any) {
	t.Helper()
	a.call(t, name, reflect.ValueOf(f), nil)
}

// Methods calls all exported methods of each receiver.
func (a Arguments) Methods(t *testing.T, receivers ...any) {
	t.Helper()
	for _, r := range receivers {
		v := reflect.ValueOf(r)
		for i := range v.NumMethod() {
			a.call(t, fmt.Sprintf("%T.%s", r, v.Type().Method(i).Name), v.Method(i), r)
		}
	}
}

func (a Arguments) call(t *testing.T, name string, f reflect.Value, receiver any) {
	t.Helper()
	typ := f.Type()
	choices, all := make([][]Argument, typ.NumIn()), 1
	for i := range choices {
		choices[i] = a.of(typ.In(i))
		all = min(all*len(choices[i]), most+1)
	}
	draw := rand.New(rand.NewPCG(1, 2))
	for n := range min(all, most) {
		args, usable := make([]reflect.Value, len(choices)), receiver == nil && len(choices) > 0
		for i, c := range choices {
			pick := n % len(c)
			if n /= len(c); all > most {
				pick = draw.IntN(len(c))
			}
			args[i], usable = c[pick].value, usable && c[pick].usable
		}
		if !usable {
			once(t, name, f, args)
		}
	}
}

// once makes one call.
func once(t *testing.T, name string, f reflect.Value, args []reflect.Value) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s(%v) panics: %v\n%s", name, args, p, debug.Stack())
		}
	}()
	call := f.Call
	if f.Type().IsVariadic() {
		call = f.CallSlice
	}
	for _, result := range call(args) {
		if c, ok := result.Interface().(interface{ Close() error }); ok && !result.IsZero() {
			_ = c.Close()
		}
	}
}

var exported = regexp.MustCompile(`(?m)^(?:func (\w+)|method \(\*?(\w+))`)

// Covers fails the test if the exported functions and the types with methods that a file of folder api
// lists are not just these.
func Covers(t *testing.T, file string, names ...string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	for _, m := range exported.FindAllStringSubmatch(string(text), -1) {
		missing[m[1]+m[2]] = true
	}
	for _, name := range names {
		if !missing[name] {
			t.Errorf("%s is not exported, or listed twice", name)
		}
		delete(missing, name)
	}
	for name := range missing {
		t.Errorf("%s is not called", name)
	}
}
