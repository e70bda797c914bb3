package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDraw(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, run([]string{"-from", "10us", "-for", "100us", "testdata/trace.json"}, &b, io.Discard))
	want, err := os.ReadFile("testdata/trace.svg")
	require.NoError(t, err)
	assert.Equal(t, string(want), b.String())
	for d := xml.NewDecoder(&b); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
}

func TestRefused(t *testing.T) {
	for name, args := range map[string][]string{
		"no file":      nil,
		"no such file": {"testdata/none.json"},
		"no trace":     {"main.go"},
		"nothing":      {"-from", "1s", "testdata/trace.json"},
		"no time":      {"-for", "0s", "testdata/trace.json"},
		"a flag":       {"-x"},
	} {
		t.Run(name, func(t *testing.T) { assert.Error(t, run(args, io.Discard, io.Discard)) })
	}
}

// TestNames: names come from programs, and the picture is XML whatever they are.
func TestNames(t *testing.T) {
	var b bytes.Buffer
	tr := trace{TraceEvents: []event{
		{Ph: "M", Name: "thread_name", Args: map[string]any{"name": "a\x1b[0m\x00"}},
		{Ph: "X", Name: "<\x01&\ufffe>", Cat: "range\"\x02", Dur: 1000},
	}}
	require.NoError(t, tr.draw(&b, 0, time.Millisecond))
	for d := xml.NewDecoder(&b); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
}
