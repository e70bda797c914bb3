package headers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cudabind/cudabind/internal/pip"
)

// downloads are those of several releases.
type downloads struct {
	slots    chan struct{} // one for each that is under way: it may hold a whole package
	index    []pip.Wheel   // what the package index has
	progress io.Writer
}

// ask asks pip where the packages are, once for all versions of one. What it
// does not find, an old pip among the reasons, is missing from the index: the
// download that then takes place reports the error. Without pip or a connection
// there is no use in one.
func (d *downloads) ask(ctx context.Context, packages []Package) error {
	var names []string
	for _, p := range packages {
		names = append(names, p.Wheel)
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if err := pipClient.Check(); err != nil {
		return err
	}
	say(d.progress, "asking pip where to find %s", strings.Join(names, ", "))
	var err error
	if d.index, err = pipClient.Index(ctx, platforms, names...); errors.Is(err, pip.ErrNoConnection) || errors.As(err, new(pip.Missing)) {
		return err
	}
	return nil
}

// release gets the headers of packages of a release.
func (d *downloads) release(ctx context.Context, r Release, packages []Package) (map[string][]byte, error) {
	var mu sync.Mutex
	files := map[string][]byte{}
	err := each(ctx, packages, func(ctx context.Context, _ int, p Package) error {
		d.slots <- struct{}{}
		defer func() { <-d.slots }()
		if ctx.Err() != nil {
			return fmt.Errorf("download of %s: %w", p.requirement(), ctx.Err())
		}
		say(d.progress, "CUDA %s: downloading %s %s", r.Version, p.Wheel, p.WheelVersion)
		got, err := d.headers(ctx, p)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		maps.Copy(files, got)
		return nil
	})
	return files, err
}

// headers gets those of a package.
func (d *downloads) headers(ctx context.Context, p Package) (map[string][]byte, error) {
	w, err := open(ctx, p.in(d.index), d.progress, p.requirement(), p.Platform)
	if err != nil {
		return nil, err
	}
	if w.whole && w.sha256 != p.SHA256 {
		return nil, fmt.Errorf("%s is not the pinned file: its sha256 is %s, not %s; "+
			"the download is damaged or pip was led elsewhere", w.name, w.sha256, p.SHA256)
	}
	a, err := openArchive(w, p.main())
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	if err := p.load(a, files); err != nil {
		return nil, fmt.Errorf("%s: %w", w.name, err)
	}
	return files, nil
}

// in is the pinned wheel among those of the index, none if it is not there.
func (p Package) in(wheels []pip.Wheel) pip.Wheel {
	i := slices.IndexFunc(wheels, func(w pip.Wheel) bool {
		return w.Name == p.Wheel && w.Version == p.WheelVersion && slices.Contains(platformsOf(w.File()), p.Platform)
	})
	if i < 0 {
		return pip.Wheel{}
	}
	return wheels[i]
}

// each runs do for all at once. It returns the first error, which ends the
// context of the others: they are likely to say the same.
func each[T any](ctx context.Context, all []T, do func(context.Context, int, T) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var (
		wg    sync.WaitGroup
		once  sync.Once
		first error
	)
	for i, one := range all {
		wg.Go(func() {
			if err := do(ctx, i, one); err != nil {
				once.Do(func() { first = err })
				stop()
			}
		})
	}
	wg.Wait()
	return first
}

// main is a header that lies in the include folder itself.
func (p Package) main() string {
	for _, h := range p.Headers {
		if !strings.Contains(h.Path, "/") {
			return h.Path
		}
	}
	return p.Headers[0].Path
}

func (p Package) requirement() string { return p.Wheel + "==" + p.WheelVersion }

// lockedWriter lets several goroutines write.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
