//go:build cgo && linux && (amd64 || arm64)

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPage: in a browser the page shows a text as it comes, Stop ends it, and what went wrong is told.
func TestPage(t *testing.T) {
	simulated(t)
	file := modelFile(t)
	want := "func" + strings.ToValidUTF8(alone(t, file, []wish{{"func", 40}})[0], "")
	s := start(t, file, 1, 1)
	b := openBrowser(t, s.url)
	write := func(prompt string) (launched func() int) {
		before := control.Calls("cuGraphLaunch")
		b.run(`form.prompt.value = '%s', form.length.value = 40, form.temperature.value = 0`, prompt)
		b.run(`form.querySelector('button').click()`)
		return func() int { return control.Calls("cuGraphLaunch") - before }
	}
	shown := func() string { return strings.ReplaceAll(b.run(`out.textContent`), "\ufffd", "") }
	over := func() bool { return b.run(`form.stop.disabled`) == "true" }
	begin := func() (launched func() int) {
		held := holdIn(t, 9)
		launched = write("func")
		eventually(t, held, "the text has begun")
		return launched
	}

	begin()
	eventually(t, func() bool { return shown() != "func" }, "a part is shown")
	assert.Less(t, len(shown()), len(want))
	assert.True(t, strings.HasPrefix(want, shown()), "%q of %q", shown(), want)
	assert.False(t, over())
	control.Hold(false)
	eventually(t, over, "the text is complete")
	assert.Equal(t, want, shown())

	launched := begin()
	b.run(`form.stop.click()`)
	eventually(t, over, "the text is stopped")
	part := shown()
	eventually(t, func() bool { return answering() == 0 }, "the server has noticed")
	control.Hold(false)
	write("func")
	eventually(t, over, "the next text is complete")
	assert.Less(t, launched(), 2*43, "the GPU wrote on after Stop")
	assert.True(t, strings.HasPrefix(want, part), "%q of %q", part, want)
	assert.Equal(t, want, shown())

	write("")
	eventually(t, over, "the text is refused")
	assert.Equal(t, "\nthe prompt is empty: give the text to write on from\n", shown())

	begin()
	s.stop()
	eventually(t, over, "the server has ended")
	assert.Contains(t, shown(), "\nThe text ends here: network error")
	assert.Empty(t, b.run(`faults.join()`))
}

// A browser shows a page. It is told what to do by the DevTools protocol, over two pipes.
type browser struct {
	t       *testing.T
	to      io.Writer
	from    *bufio.Reader
	calls   int
	session string
}

// openBrowser opens a page in a browser without a window, which the end of the test closes.
func openBrowser(t *testing.T, url string) *browser {
	name := ""
	for _, n := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if found, err := exec.LookPath(n); err == nil {
			name = found
		}
	}
	if name == "" {
		t.Skip("needs a browser: install Chromium (apt-get install chromium) or Chrome")
	}
	profile, err := os.MkdirTemp("", "gpt")
	require.NoError(t, err)
	t.Cleanup(func() { // the browser's other processes may outlive it for a moment, and write there
		eventually(t, func() bool { return os.RemoveAll(profile) == nil }, "the browser's files are removed")
	})
	command := exec.Command(name, "--headless", "--remote-debugging-pipe", "--user-data-dir="+profile, "--disable-gpu", "--disable-dev-shm-usage")
	if os.Geteuid() == 0 { // the browser's sandbox refuses root
		command.Args = append(command.Args, "--no-sandbox")
	}
	in, to, err := os.Pipe()
	require.NoError(t, err)
	from, out, err := os.Pipe()
	require.NoError(t, err)
	command.ExtraFiles = []*os.File{in, out} // 3 and 4
	require.NoError(t, command.Start())
	in.Close()
	out.Close()
	b := &browser{t: t, to: to, from: bufio.NewReader(from)}
	t.Cleanup(func() {
		to.Close() // ends the browser
		command.Wait()
		from.Close()
	})
	target := b.call("Target.createTarget", map[string]any{"url": "about:blank"})["targetId"]
	b.session = b.call("Target.attachToTarget", map[string]any{"targetId": target, "flatten": true})["sessionId"].(string)
	b.call("Page.enable", map[string]any{})
	b.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": `
		const faults = [];
		addEventListener('error', e => faults.push(e.message));
		addEventListener('unhandledrejection', e => faults.push(e.reason));`})
	b.call("Page.navigate", map[string]any{"url": url})
	eventually(t, func() bool { return b.run(`document.readyState`) == "complete" }, "the page is loaded")
	return b
}

// run runs JavaScript in the page, and returns its result as a string.
func (b *browser) run(script string, values ...any) string {
	answer := b.call("Runtime.evaluate", map[string]any{"expression": "String(" + fmt.Sprintf(script, values...) + ")"})
	require.NotContains(b.t, answer, "exceptionDetails")
	return answer["result"].(map[string]any)["value"].(string)
}

// call calls a method of the protocol. Messages end with a 0.
func (b *browser) call(method string, parameters map[string]any) map[string]any {
	b.calls++
	message := map[string]any{"id": b.calls, "method": method, "params": parameters}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	data, err := json.Marshal(message)
	require.NoError(b.t, err)
	_, err = b.to.Write(append(data, 0))
	require.NoError(b.t, err)
	for {
		data, err := b.from.ReadBytes(0)
		require.NoError(b.t, err)
		var answer struct {
			ID     int
			Result map[string]any
			Error  *struct{ Message string }
		}
		require.NoError(b.t, json.Unmarshal(data[:len(data)-1], &answer))
		if answer.ID == b.calls { // others are events
			require.Nil(b.t, answer.Error, method)
			return answer.Result
		}
	}
}
