package doc

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/cudabind/cudabind/gen/model"
)

// Package is the package comment: how to start, what to mind, and where what
// is, a heading a chapter of the header.
func Package(a *model.API, name string) []string {
	c := &comment{links: newLinks(a, nil, nil), verbatim: true}
	c.text(fmt.Sprintf("Package %s binds %s: every function that its library exports, as %s of CUDA %s declares them.", name, a.Row.Title, a.Header, a.Version))
	for _, s := range intro(a) {
		c.heading(s.title)
		for _, p := range s.text {
			c.text(p)
		}
	}
	main := mainNames(a)
	for _, g := range a.Groups {
		var names []string
		seen := map[string]bool{}
		for _, f := range a.Funcs {
			base, _, _ := model.Base(f.Symbol)
			if f.Group == g.Name && !seen[base] && main[base] != "" {
				seen[base] = true
				names = append(names, "["+main[base]+"]")
			}
		}
		if len(names) > 0 {
			c.heading(title(g))
			c.text(strings.Join(names, ", ") + ".")
		}
	}
	return c.done()
}

// packageSection is a part of the package comment.
type packageSection struct {
	title string
	text  []string
}

// An opening is what the package comment says of one library alone.
type opening struct {
	start   string
	heading string
	rules   []string // of threads, contexts and memory
	late    string   // of errors that come late, with a space in front
	version string
}

const (
	handles = "Any goroutine may use a handle; handles are numbers and keep nothing alive. Memory that CUDA goes on using after a call returned, as asynchronous copies do, must be CUDA's own pinned memory or C memory, or be pinned with a runtime.Pinner until the work is done. A call that blocks holds an OS thread."
	mixing  = "Driver and runtime may be mixed in a program: the runtime works in the devices' primary contexts, and streams, events, graphs and device pointers of one API are those of the other, so that a conversion suffices, as in "
	backs   = "A callback that CUDA runs on a thread of its own may be a Go function exported to C. Where it may run on the calling thread it must not; the comments say which."
	late    = " A call may also return the error of earlier work, which fails on the device after the call that began it has returned; after a fault every call of the process fails."
	streams = "Contexts, threads and memory"
)

var openings = map[string]opening{
	"driver": {
		start:   "Call [CuInit] first, then [CuDeviceGetCount] and [CuDeviceGet]; [CuDevicePrimaryCtxRetain] gives the context that other libraries use too, and [CuStreamCreate] a queue to put work in.",
		heading: streams,
		rules: []string{
			"CUDA's current context belongs to the OS thread, and goroutines move from thread to thread. Around calls that need a current context, or one after another, lock the goroutine with runtime.LockOSThread, set the context with [CuCtxSetCurrent], and put back what was current.",
			mixing + "cudart{major}.CudaStream_t(stream).", handles, backs,
		},
		late:    late,
		version: "One package serves every driver since CUDA 11.8: no function was ever removed or changed. Functions are named after the symbols they call; a plain name such as [CuCtxCreate] calls what its comment says, and keeps that meaning in later versions of this package.",
	},
	"runtime": {
		start:   "Begin with [CudaGetDeviceCount] and [CudaSetDevice]; [CudaStreamCreate] gives a queue to put work in. The runtime sets up a device's primary context at the first call that needs it.",
		heading: streams,
		rules: []string{
			"CUDA's current device belongs to the OS thread, and goroutines move from thread to thread. Lock the goroutine with runtime.LockOSThread before [CudaSetDevice], and put back what was set.",
			mixing + "driver.CUstream(stream).", handles, backs,
		},
		late:    late,
		version: "Each major version of the runtime has a package of its own, since names mean other prototypes from one to the next: this one loads the library of CUDA {major} alone.",
	},
	"nvrtc": {
		start:   "[NvrtcCreateProgram] takes source, [NvrtcCompileProgram] compiles it, and [NvrtcGetCUBIN] or [NvrtcGetPTX] returns an image for package driver or package safe to load. Neither a GPU nor a driver is needed.",
		heading: "Threads and memory",
		rules: []string{
			"Any goroutine may compile, and several may at once, each with a program of its own. One program must not be used by two calls at once. A call that compiles holds an OS thread for as long as that takes.",
			"C strings are the address of their first byte and end with a zero byte. A list of strings is Go memory that holds addresses: pin the strings with a runtime.Pinner until the call returns.",
		},
		version: "One package serves every NVRTC since CUDA 11.8. The version of NVRTC decides which GPUs it compiles for and which language it knows; what it compiles to machine code runs with any driver of the same major version or a later one.",
	},
	"nvjitlink": {
		start:   "[NvJitLinkCreate] begins with the target GPU, [NvJitLinkAddData] adds LTO IR, PTX, cubins, objects or libraries, [NvJitLinkComplete] links them, and [NvJitLinkGetLinkedCubin] returns an image for package driver or package safe to load. Neither a GPU nor a driver is needed.",
		heading: "Threads and memory",
		rules: []string{
			"Any goroutine may link, and several may at once, each with a handle of its own. One handle must not be used by two calls at once. A call that links holds an OS thread for as long as that takes.",
			"C strings are the address of their first byte and end with a zero byte. A list of strings is Go memory that holds addresses: pin the strings with a runtime.Pinner until the call returns.",
		},
		version: "One package serves every nvJitLink since CUDA 12.3: earlier ones export no plain names. A library links LTO IR of its own version and earlier ones of the same major version.",
	},
}

func intro(a *model.API) []packageSection {
	own := openings[a.Row.API]
	var rules []string
	for _, r := range own.rules {
		rules = append(rules, a.Row.For(a.Version, r))
	}
	return []packageSection{
		{"Start", []string{
			"Nothing of CUDA is needed to build a program, and nothing happens when it starts: the library is opened at the first call, or by [Open].",
			own.start,
		}},
		{own.heading, rules},
		{"Errors", []string{
			"Functions return nil on success and otherwise the status code itself, which is an error: errors.Is(err, " + a.Row.Example + "). Results that are no status come before the error." + own.late,
			"A function that the installed library lacks returns a [*SymbolError], and where there is no library every function returns a [*LibraryError]. Both match [errors.ErrUnsupported], as do the codes that say that something is not supported.",
		}},
		{"Versions", []string{
			a.Row.For(a.Version, own.version),
			"[Library] tells what is loaded, [Find] whether it has a function, and [Missing] which functions of this package it lacks.",
		}},
	}
}

var brackets = regexp.MustCompile(`\s*\[DEPRECATED\]\s*`)

// title is a chapter's name as a heading of Go's comments: words alone.
func title(g model.Group) string {
	t := strings.TrimSpace(brackets.ReplaceAllString(g.Title, ", deprecated"))
	if t == "" {
		t = g.Name
	}
	return strings.Trim(t, ".")
}

// heading begins a section.
func (c *comment) heading(text string) {
	c.gap()
	c.lines = append(c.lines, "# "+text)
}
