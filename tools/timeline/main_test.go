package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"testing"

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
