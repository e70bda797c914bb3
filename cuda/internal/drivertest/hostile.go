package drivertest

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Hostile calls functions and methods as no program should: on nil pointers and zero values, and
// with nil, zero and extreme arguments. None may panic, whatever it returns.
type Hostile struct {
	// Objects makes objects for receivers and arguments. It is called for each function and
	// each method, which may close them.
	Objects func(t *testing.T) []any
	// Without are methods and functions that are not called, with the reason.
	Without map[string]string
}

// Run calls functions, and the methods of zero values, of objects of their types, of copies of
// these, and of nil pointers. The functions and the types must be all exported ones of the package
// that is tested.
func (h Hostile) Run(t *testing.T, functions map[string]any, zeros []any) {
	for _, f := range ExportedFunctions(t, ".") {
		assert.Contains(t, functions, f.Name.Name, "it is not tested")
	}
	for name, f := range functions {
		h.run(t, name, func(good goods) { good.vary(t, name, reflect.ValueOf(f)) })
	}
	missing := typesWithMethods(t, ".")
	for _, zero := range zeros {
		name, _, _ := strings.Cut(reflect.Indirect(reflect.ValueOf(zero)).Type().Name(), "[")
		delete(missing, name)
		h.methods(t, zero)
	}
	assert.Empty(t, missing, "the methods of these types are not tested")
}

func (h Hostile) methods(t *testing.T, zero any) {
	of := reflect.TypeOf(zero)
	kind := of
	if of.Kind() == reflect.Pointer {
		kind = of.Elem()
	}
	_, isError := zero.(error)
	for i := range of.NumMethod() {
		name := fmt.Sprintf("%v.%s", kind, of.Method(i).Name)
		h.run(t, name, func(good goods) {
			if of != kind && !isError { // a nil pointer to an error is the fault of who returns it
				good.vary(t, "nil "+name, reflect.Zero(of).Method(i))
			}
			good.vary(t, "zero "+name, reflect.ValueOf(zero).Method(i))
			for _, v := range good {
				if v.Type() != of {
					continue
				}
				good.vary(t, name, v.Method(i))
				if of != kind {
					copied := reflect.New(kind)
					copied.Elem().Set(v.Elem())
					good.vary(t, "copied "+name, copied.Method(i))
				}
			}
		})
	}
}

func (h Hostile) run(t *testing.T, name string, vary func(good goods)) {
	if h.Without[name] != "" {
		return
	}
	t.Run(name, func(t *testing.T) {
		var good goods
		for _, o := range h.Objects(t) {
			good = append(good, reflect.ValueOf(o))
		}
		vary(good)
	})
}

// goods are objects to call functions with.
type goods []reflect.Value

// vary calls f with good arguments, and with each bad argument among good ones.
func (g goods) vary(t *testing.T, name string, f reflect.Value) {
	args := make([]reflect.Value, f.Type().NumIn())
	for i := range args {
		args[i] = g.of(f.Type().In(i), 1)
	}
	try(t, name, f, args)
	for i := range args {
		kept := args[i]
		for _, bad := range bads(f.Type().In(i), 2) {
			args[i] = bad
			try(t, fmt.Sprintf("%s, argument %d = %#v", name, i, bad), f, args)
		}
		args[i] = kept
	}
}

// of returns a good value of a type. There may be slices in slices to a depth.
func (g goods) of(t reflect.Type, depth int) reflect.Value {
	for _, v := range g {
		if v.Type().AssignableTo(t) && t != reflect.TypeFor[any]() {
			return v
		}
	}
	v := reflect.New(t).Elem()
	switch {
	case t == reflect.TypeFor[context.Context]():
		v.Set(reflect.ValueOf(context.Background()))
	case t.Kind() == reflect.Slice && depth > 0:
		v = reflect.Append(v, g.of(t.Elem(), depth-1))
	case t.Kind() == reflect.Func:
		v = reflect.MakeFunc(t, func([]reflect.Value) (results []reflect.Value) {
			for i := range t.NumOut() {
				results = append(results, reflect.Zero(t.Out(i)))
			}
			return results
		})
	case v.CanInt():
		v.SetInt(1)
	case t.Kind() == reflect.String:
		v.SetString("name")
	}
	return v
}

// bads are nil, zero and extreme values of a type, with those of parts to a depth.
func bads(t reflect.Type, depth int) []reflect.Value {
	zero := reflect.New(t).Elem()
	all := []reflect.Value{zero}
	add := func(set func(v reflect.Value)) {
		v := reflect.New(t).Elem()
		set(v)
		all = append(all, v)
	}
	switch {
	case zero.CanInt():
		for _, n := range []int64{-1, math.MinInt64, math.MaxInt64, 1 << 40} {
			if !zero.OverflowInt(n) {
				add(func(v reflect.Value) { v.SetInt(n) })
			}
		}
	case zero.CanUint() && t.Kind() != reflect.Uintptr: // that would be a handle
		add(func(v reflect.Value) { v.SetUint(math.MaxUint64 >> (64 - t.Bits())) })
	case zero.CanFloat():
		add(func(v reflect.Value) { v.SetFloat(math.NaN()) })
	}
	switch t.Kind() {
	case reflect.String:
		add(func(v reflect.Value) { v.SetString("\x00") })
	case reflect.Pointer:
		all = append(all, reflect.New(t.Elem()))
	case reflect.Slice:
		for _, bad := range bads(t.Elem(), depth) {
			add(func(v reflect.Value) { v.Set(reflect.Append(v, bad)) })
		}
	case reflect.Struct:
		for i := range t.NumField() {
			if depth > 0 && t.Field(i).IsExported() {
				for _, bad := range bads(t.Field(i).Type, depth-1) {
					add(func(v reflect.Value) { v.Field(i).Set(bad) })
				}
			}
		}
	}
	return all
}

// try makes one call, and closes what it returns.
func try(t *testing.T, name string, f reflect.Value, args []reflect.Value) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			assert.Fail(t, name+" panics", "%v\n%s", p, debug.Stack())
		}
	}()
	call := f.Call
	if f.Type().IsVariadic() {
		call = f.CallSlice
	}
	for _, result := range call(args) {
		if (result.Kind() == reflect.Pointer || result.Kind() == reflect.Func) && result.IsNil() {
			continue
		}
		switch r := result.Interface().(type) {
		case interface{ Close() error }:
			_ = r.Close()
		case func():
			r()
		default:
			if end := result.MethodByName("End"); end.IsValid() {
				end.Call(nil)
			}
		}
	}
}
