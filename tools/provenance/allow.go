package main

import (
	"errors"
	"fmt"
)

// An allowance is a phrase that any text on the subject may hold, or a text by
// others that both the headers and we quote.
type allowance struct {
	phrase string
	reason string
}

// allowances is empty: no phrase of ours has had to collide so far. Prefer
// other words to a row here.
var allowances []allowance

// allow takes the phrases out of the index. One that was not in it is an
// error: the table holds no phrase that is not needed.
func (x *index) allow(list []allowance) error {
	var errs []error
	for _, a := range list {
		before := len(x.runs)
		var ids []uint32
		for _, word := range words([]byte(a.phrase)) {
			ids = append(ids, x.number(word))
		}
		for end := runLength; end <= len(ids); end++ {
			delete(x.runs, shingle(ids[end-runLength:end]))
		}
		if len(x.runs) == before {
			errs = append(errs, fmt.Errorf("stale allowance, no header says %q: remove it", a.phrase))
		}
	}
	return errors.Join(errs...)
}
